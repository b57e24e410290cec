// yoke/stack/ranks.h -- shows where each rank of a job is, from /proc and by the installed debuggers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/launch/job/job_client.h"
#include "yoke/stack/report.h"

namespace yoke::stack {

/// Returns the stacks of the job's ranks, or of `rank` alone. Native stacks come from eu-stack, gdb or pstack, Python
/// stacks from py-spy, which are searched on the PATH of `environment`. ProcessStack::notes explains what is missing.
/// Each tool stops its process, reads the stack and continues it. Errors  kNotFound if the job has no such rank;
/// kUnavailable if no process can be started. REQUIRES: one thread.
std::vector<RankStack> take_stacks(const launch::Job& job, std::optional<int64_t> rank, const Environment& environment);

}  // namespace yoke::stack
