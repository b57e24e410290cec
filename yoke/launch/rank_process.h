// yoke/launch/rank_process.h -- from a RankPlan to a running process.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "yoke/launch/plan.h"

namespace yoke::launch {

/// What a child writes into `failures` if exec fails, before it exits with 126 or 127.
struct ExecFailure {
  int32_t rank = 0;
  int32_t error_number = 0;
};

struct StartOptions {
  int out_fd = -1;  ///< -1: the launcher's.
  int err_fd = -1;
  int null_fd = -1;   ///< Standard input where the launcher's is not for this rank.
  int failures = -1;  ///< A pipe, close-on-exec.
  rlimit file_limit{};
};

/// Starts the rank in a session of its own, with default signals, and with SIGKILL as its death signal for the case
/// that its guardian (the calling thread) dies. Returns the pid, or -1 with errno. REQUIRES: one thread.
pid_t start_rank(const RankPlan& plan, const StartOptions& options);

}  // namespace yoke::launch
