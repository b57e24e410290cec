// yoke/train/seed.h -- where randomness comes from, and whether a run can be repeated to the last bit.
#pragma once

#include <cstdint>

namespace yoke::train {

struct SeedOptions {
  uint64_t seed = 0;
  int64_t rank = 0;  ///< This rank's own stream; the same number on all ranks for one common stream.
  /// Ask libtorch and cuDNN for kernels that give the same bits every time; an operation that has none throws. Slower.
  bool deterministic = false;
};

/// Seeds libtorch's generators: the CPU's, and those of all GPUs that this process sees.
///
/// Rank 0's stream is PyTorch's own for `manual_seed(seed)`; see rank_seed for the others. What must be equal on all
/// ranks (a model's first weights, before DistributedDataParallel broadcasts rank 0's) is made after seeding with rank
/// 0; dropout wants each rank's own.
///
/// With `deterministic`: at::Context's deterministic algorithms, cuDNN deterministic and not benchmarking, and
/// CUBLAS_WORKSPACE_CONFIG=:4096:8 unless it is set (cuBLAS reads it when the first GPU work starts: seed before). It
/// never switches these off again, and leaves the thread count alone, on which the bits depend too.
/// Threads  before other threads read the environment.
/// Errors   kInvalidArgument for a negative rank.
void seed(const SeedOptions& options);

/// The seed of rank `rank`'s stream: `seed` for rank 0; else output number `rank` of SplitMix64 started at `seed`, so
/// that neighbouring seeds and ranks share nothing.
/// Source  Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
uint64_t rank_seed(uint64_t seed, int64_t rank);

}  // namespace yoke::train
