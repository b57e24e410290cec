// yoke/launch/process/rank_process.h -- starts a process for a RankPlan.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>

#include "yoke/contract/preload.h"
#include "yoke/launch/plan/plan.h"

namespace yoke::launch {

/// If exec fails, the child writes this record into `failures`, then exits with 126 or 127.
struct ExecFailure {
  int32_t index = 0;
  int32_t error_number = 0;
};

struct StartOptions {
  int in_fd = -1;
  int out_fd = -1;
  int err_fd = -1;
  int master_fd = -1;  ///< The master's socket, whose number is in the rank's YOKE_MASTER_LISTEN_FD; -1: none.
  int failures = -1;   ///< A close-on-exec pipe for the records of failed execs.
  int32_t index = 0;   ///< The index of the rank in its ExecFailure record.
  rlimit file_limit{};
};

/// The process that becomes a rank's parent and watches it: the caller, or the caller's parent.
enum class Guard { kCaller, kParent };

/// Returns the properties of the rank's process. They do not depend on whether it is started by exec or forked from a
/// preloaded program.
RankProcess to_rank_process(const RankPlan& plan, const StartOptions& options);

/// Starts the rank in the plan's process group, or in a new session. The rank has default signal dispositions. Its
/// death signal is SIGKILL, in case its guardian dies. Returns the pid, or -1 with errno.
/// REQUIRES: one thread; descriptors in `options` are above the three standard streams; the plan's process group, if
/// any, is in the caller's session.
pid_t start_rank(const RankPlan& plan, const StartOptions& options, Guard guard = Guard::kCaller);

}  // namespace yoke::launch
