// yoke/stack/processes.h -- reads from /proc what the processes of ranks do, without stopping them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "yoke/launch/job/job_client.h"
#include "yoke/stack/report.h"

namespace yoke::stack {

/// The processes of the job's ranks (only those of `rank` if it is given), with their threads but without frames. A
/// rank whose processes cannot be read has a note instead.
/// Errors  kNotFound: the job has no such rank.
std::vector<RankStack> look_at_ranks(const launch::Job& job, std::optional<int64_t> rank);

/// Each thread of a process with its state and its place in the kernel. Empty if the process has ended.
std::vector<ThreadStack> look_at_threads(int64_t pid);

/// Whether a thread waits in the kernel (state D), in which case no tool can stop the process to look at it.
bool is_in_kernel(const std::vector<ThreadStack>& threads);

/// Adds the main thread's stack in the kernel, if no tool has shown the thread's frames. Only root may read it.
void add_kernel_stack(ProcessStack& process);

}  // namespace yoke::stack
