#include "yoke/launch/process/kernel_sleep.h"

#include <fmt/format.h>

#include "yoke/base/sysfs.h"
#include "yoke/device/process/info.h"

namespace yoke::launch {
namespace {

/// The time between two looks, torchrun's --monitor-interval. A look costs a few microseconds a process.
constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

bool is_in_kernel_sleep(pid_t pid) {
  const auto stat = device::parse_process_stat(text_of(fmt::format("/proc/{}/stat", pid)));
  return stat && stat->state == 'D';
}

void KernelSleep::add(pid_t pid) {
  if (limit_.count() > 0) since_[pid] = std::nullopt;
}

std::optional<KernelSleep::Time> KernelSleep::next_time() const {
  return since_.empty() ? std::nullopt : std::optional(next_);
}

std::vector<pid_t> KernelSleep::look(Time now) {
  std::vector<pid_t> result;
  if (since_.empty() || now < next_) return result;
  next_ = now + kInterval;
  for (auto& [pid, since] : since_) {
    if (!is_asleep_(pid)) {
      since.reset();
    } else if (!since) {
      since = now;
    } else if (now - *since >= limit_) {
      result.push_back(pid);
    }
  }
  for (const auto pid : result) since_.erase(pid);
  return result;
}

}  // namespace yoke::launch
