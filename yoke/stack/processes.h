// yoke/stack/processes.h -- reads from /proc what ranks' processes are doing, without stopping them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "yoke/launch/job/job_client.h"
#include "yoke/stack/report.h"

namespace yoke::stack {

/// Returns the processes of the job's ranks (only of `rank` if it is given), with their threads but without frames. A
/// rank whose processes cannot be read has a note instead.
/// Errors  kNotFound if the job has no such rank.
std::vector<RankStack> look_at_ranks(const launch::Job& job, std::optional<int64_t> rank);

/// Returns each thread of a process, with its state and its place in the kernel. Empty if the process has ended.
std::vector<ThreadStack> look_at_threads(int64_t pid);

/// Whether a thread is blocked in the kernel (state D). No tool can stop such a process to inspect it.
bool is_in_kernel(const std::vector<ThreadStack>& threads);

/// Adds the kernel stack of the main thread, if no tool has shown the thread's frames. Only root may read it.
void add_kernel_stack(ProcessStack& process);

}  // namespace yoke::stack
