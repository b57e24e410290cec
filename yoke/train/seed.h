// yoke/train/seed.h -- seeds the random generators, and makes runs reproducible to the last bit.
#pragma once

#include <cstdint>

namespace yoke::train {

struct SeedOptions {
  uint64_t seed = 0;
  int64_t rank = 0;  ///< Selects the stream of random numbers; with the same number, ranks have the same stream.
  /// If true, libtorch and cuDNN use slower kernels that always give the same bits. An operation without one throws.
  bool deterministic = false;
};

/// Seeds libtorch's generators: the CPU's, and those of all GPUs that this process sees. The stream of rank 0 is
/// PyTorch's for `manual_seed(seed)`; see rank_seed for other ranks. To make values that are equal on all ranks (a
/// model's initial weights), seed with rank 0 on all of them. Dropout needs a different stream on each rank.
/// `deterministic` sets at::Context's deterministic algorithms, cuDNN deterministic and not benchmarking, and
/// CUBLAS_WORKSPACE_CONFIG=:4096:8 unless it is set (cuBLAS reads it when the first GPU work starts, so seed before
/// that). These settings are never reset. The number of threads, on which the bits depend too, is not changed.
/// Threads  call it before other threads read the environment.
/// Errors   kInvalidArgument for a negative rank.
void seed(const SeedOptions& options);

/// The seed of rank `rank`'s stream: `seed` for rank 0; otherwise output number `rank` of SplitMix64 started at `seed`,
/// so that streams of neighbouring seeds and ranks are unrelated.
/// Source  Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
uint64_t rank_seed(uint64_t seed, int64_t rank);

}  // namespace yoke::train
