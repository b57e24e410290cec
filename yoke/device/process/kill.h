// yoke/device/process/kill.h -- ends processes, and waits until they have ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/device/process/kill_plan.h"
#include "yoke/device/process/signal.h"

namespace yoke::device {

/// This process and its ancestors.
KillAsker kill_asker();

/// A process to end, and the result. The handle (a pidfd) refers to this process even if the process ends and the
/// kernel gives its PID to a new one.
struct Victim {
  KillTarget target;
  std::optional<ProcessHandle> handle;
  std::string result = "refused";  ///< "ended", "killed" (by SIGKILL, after the first signal did not end it),
                                   ///< "signaled", "survived", "refused"

  /// Whether it is still to be ended.
  bool is_open() const { return result == "refused" && !target.refusal; }
};

/// Opens handles of the processes, and checks that the kernel lets this user signal them.
std::vector<Victim> hold(std::vector<KillTarget> targets);

/// What end() waits for.
struct KillWait {
  int64_t num_left = 0;  ///< Processes; 0: the wait is over.
  std::chrono::milliseconds waited{0}, left{0};
};

struct KillOptions {
  int signal = 0;
  bool forces = false;                                ///< SIGKILL follows for those that have not ended after `wait`.
  std::chrono::milliseconds wait{10'000};             ///< 0: until the signal is sent.
  std::function<void(const KillWait&)> on_wait = {};  ///< Called ten times a second, and at the end.
};

/// Sends the signal to all that are open, and waits for the end of those that it ends. Afterwards none is open.
void end(std::vector<Victim>& victims, const KillOptions& options);

}  // namespace yoke::device
