#include "yoke/train/seed.h"

#include <ATen/Context.h>

#include <cstdlib>

#include "yoke/base/error.h"

namespace yoke::train {

uint64_t rank_seed(uint64_t seed, int64_t rank) {
  if (rank < 0) throw Error(ErrorCode::kInvalidArgument, "seed: rank {}", rank);
  if (rank == 0) return seed;
  uint64_t z = seed + static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void seed(const SeedOptions& options) {
  const uint64_t stream = rank_seed(options.seed, options.rank);
  if (options.deterministic) {
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    auto& context = at::globalContext();
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    context.setDeterministicCuDNN(true);
    context.setBenchmarkCuDNN(false);
  }
  at::manual_seed(stream);
}

}  // namespace yoke::train
