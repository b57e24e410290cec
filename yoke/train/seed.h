// yoke/train/seed.h -- seeds the random generators, and makes runs reproducible to the last bit.
#pragma once

#include <cstdint>

namespace yoke::train {

struct SeedOptions {
  uint64_t seed = 0;
  int64_t rank = 0;  ///< Selects the stream of random numbers. Ranks that pass the same value draw the same numbers.
  /// If true, libtorch and cuDNN use slower kernels that always give the same bits. An operation without such a kernel
  /// throws.
  bool deterministic = false;
};

/// Seeds libtorch's generators: the CPU's, and those of all GPUs that this process sees. Rank 0 draws the numbers that
/// PyTorch draws after `manual_seed(seed)`; see rank_seed for other ranks. To make values that are equal on all ranks
/// (a model's initial weights), seed with rank 0 on all of them. Dropout needs a different stream on each rank.
/// `deterministic` sets at::Context's deterministic algorithms, cuDNN deterministic and not benchmarking, and
/// CUBLAS_WORKSPACE_CONFIG=:4096:8 unless the variable is set. cuBLAS reads this variable when the first GPU work
/// starts, so seed earlier. The settings are never reset. Result bits also depend on the number of threads, which is
/// not changed.
/// Threads  call it before other threads read the environment.
/// Errors   kInvalidArgument for a negative rank.
void seed(const SeedOptions& options);

/// The seed of rank `rank`'s stream: `seed` for rank 0; otherwise output number `rank` of SplitMix64 started at `seed`,
/// so that streams of neighbouring seeds and ranks are unrelated.
/// Source  Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
uint64_t rank_seed(uint64_t seed, int64_t rank);

}  // namespace yoke::train
