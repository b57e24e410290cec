// yoke/device/process/kill_plan.h -- which processes `yoke kill` may end, and why it may not end other processes. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/device/uses.h"

namespace yoke::device {

/// The user's request: PIDs, or all processes on `devices` (on all devices if empty), of one user or of all users.
struct KillRequest {
  std::vector<int64_t> pids;
  DeviceSelection devices;
  std::optional<int64_t> uid;
  bool with_any = false;  ///< Also end processes in `pids` that are on no device.
};

/// The process that makes the request.
struct KillAsker {
  int64_t pid = 0;
  std::set<int64_t> ancestors;  ///< Ending an ancestor may end this command or its session.
};

/// Why a process is not to be ended, or has not ended.
struct Refusal {
  ErrorCode code = ErrorCode::kInternal;
  std::string reason;

  bool operator==(const Refusal&) const = default;
};

/// A process that the request names or matches.
struct KillTarget {
  int64_t pid = 0;
  std::vector<std::string> devices;  ///< Empty if the process is on no device.
  DeviceProcess process;             ///< As listed for the first device, but with its total memory on all devices.
  std::optional<Refusal> refusal;

  bool operator==(const KillTarget&) const = default;
};

/// Returns the targets in the order of the request's PIDs, or of the devices if it has no PIDs. `describe` describes a
/// PID that is on no device.
/// Errors  those of DeviceSelection::resolve; kInvalidArgument if the request names the CPU, which every process uses.
std::vector<KillTarget> plan_kill(const KillRequest& request, const Snapshot& snapshot, const KillAsker& asker,
                                  const std::function<ProcessInfo(int64_t pid)>& describe);

}  // namespace yoke::device
