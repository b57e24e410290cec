// yoke/launch/job/host_tries.h -- when to try again to start an agent on each host, and which failures to report. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace yoke::launch {

class HostTries {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit HostTries(size_t num_hosts) : hosts_(num_hosts) {}

  /// Whether host `index` may be tried now. If so, the next try is allowed only after a pause. The pause doubles each
  /// time.
  bool take(size_t index, Time now) {
    auto& host = hosts_[index];
    if (now < host.next) return false;
    host.next = now + host.pause;
    host.pause = std::min(2 * host.pause, kLongestPause);
    return true;
  }
  /// Whether to report a failure of host `index`: only the first one since the host was last reached is reported.
  bool take_complaint(size_t index) { return !std::exchange(hosts_[index].has_said, true); }
  /// Resets pause and report after host `index` was reached.
  void forget(size_t index) { hosts_[index] = {}; }

 private:
  static constexpr std::chrono::seconds kLongestPause{60};
  struct Host {
    Time next;
    std::chrono::seconds pause{1};
    bool has_said = false;
  };
  std::vector<Host> hosts_;
};

}  // namespace yoke::launch
