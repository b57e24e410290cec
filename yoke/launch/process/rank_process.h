// yoke/launch/process/rank_process.h -- from a RankPlan to a running process.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "yoke/launch/plan/plan.h"

namespace yoke::launch {

/// What a child writes into `failures` if exec fails, before it exits with 126 or 127.
struct ExecFailure {
  int32_t index = 0;
  int32_t error_number = 0;
};

struct StartOptions {
  int in_fd = -1;
  int out_fd = -1;
  int err_fd = -1;
  int master_fd = -1;  ///< The master's socket, told to the rank in YOKE_MASTER_LISTEN_FD; -1: not this rank's.
  int failures = -1;   ///< A pipe, close-on-exec.
  int32_t index = 0;   ///< For `failures`.
  rlimit file_limit{};
};

/// Starts the rank in a session of its own, with default signals, and with SIGKILL as its death signal for the case
/// that its guardian (the calling thread) dies. Returns the pid, or -1 with errno. REQUIRES: one thread; descriptors
/// that it is given are above the three standard streams.
pid_t start_rank(const RankPlan& plan, const StartOptions& options);

}  // namespace yoke::launch
