// yoke/slurm/verify/measure.h -- measures how fast the CPUs of this process copy memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "yoke/base/cpu_set.h"
#include "yoke/slurm/verify/verify.h"

namespace yoke::slurm {

/// Copies memory with a thread on each of this process's CPUs (32 at most), and then, if its control group allows more
/// CPUs, on all of those. Takes 0.3 s each. Leaves the CPUs of this process as they were. `num_ranks` processes on this
/// host measure at once; together they take a quarter of the memory that is available. Errors  std::bad_alloc
MemoryMeasured measure_memory(const CpuSet& own, int64_t num_ranks);

/// The size of each of the two buffers of a thread, 1 to 64 MiB. Pure.
size_t buffer_bytes(int64_t available_bytes, int64_t num_ranks, size_t num_threads);

}  // namespace yoke::slurm
