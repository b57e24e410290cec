// yoke/cli/kill_plan.h -- which processes `yoke kill` may end, and why not the others: pure functions of values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/cli/process_views.h"

namespace yoke::cli {

/// What the user asked for: PIDs, or all processes on `devices` (all devices when empty), of one user or of everybody.
struct KillRequest {
  std::vector<int64_t> pids;
  device::DeviceSelection devices;
  std::optional<int64_t> uid;
  bool with_any = false;  ///< PIDs that are on no device, too.
};

/// Who asks.
struct KillAsker {
  int64_t pid = 0;
  std::set<int64_t> ancestors;  ///< Ending one of them may end this command, or the session that it runs in.
};

/// Why a process is not ended, or has not ended.
struct Refusal {
  ErrorCode code = ErrorCode::kInternal;
  std::string reason;

  bool operator==(const Refusal&) const = default;
};

/// A process that was asked for.
struct KillTarget {
  int64_t pid = 0;
  std::vector<std::string> devices;  ///< Empty: it is on none.
  device::DeviceProcess process;     ///< On the first of the devices, with the memory of all.
  std::optional<Refusal> refusal;

  bool operator==(const KillTarget&) const = default;
};

/// What is asked for, in the order of the PIDs, or else of the devices. `describe` tells of a PID that is on none.
/// Errors  of DeviceSelection::resolve; kInvalidArgument: the processors, which everybody uses.
std::vector<KillTarget> plan_kill(const KillRequest& request, const device::Snapshot& snapshot, const KillAsker& asker,
                                  const std::function<device::ProcessInfo(int64_t pid)>& describe);

/// "TERM", "SIGTERM", "15". Errors  kInvalidArgument.
int parse_signal(std::string_view text);

/// Whether a process that does not handle it ends by it, and people send it for that.
bool is_ending(int signal);

}  // namespace yoke::cli
