// yoke/stack/ranks.h -- shows where each rank of a job is, by /proc and the debuggers that are installed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/launch/job/job_client.h"
#include "yoke/stack/report.h"

namespace yoke::stack {

/// The stacks of the job's ranks, or of `rank` alone: native ones by eu-stack, gdb or pstack, Python's by py-spy, found
/// on the PATH of `environment`. ProcessStack::notes explains what is missing. Each tool stops its process while it
/// looks, and the process continues afterwards. Errors  kNotFound: the job has no such rank; kUnavailable: no process
/// can be started. REQUIRES: one thread.
std::vector<RankStack> take_stacks(const launch::Job& job, std::optional<int64_t> rank, const Environment& environment);

}  // namespace yoke::stack
