// yoke/train/data/sampler.h -- decides which samples each rank sees in an epoch, and in which order.
#pragma once

#include <cstdint>
#include <vector>

namespace yoke::dist {
class Group;
}

namespace yoke::train {

struct DistributedSamplerOptions {
  int64_t num_samples = 0;  ///< In the whole data set.
  int64_t num_ranks = 1;
  int64_t rank = 0;
  bool shuffle = true;
  uint64_t seed = 0;  ///< Must be the same on all ranks, or they see overlapping samples.
  /// The number of samples is rarely a multiple of the number of ranks. If false, the first samples of the epoch's
  /// order are seen twice; if true, its last ones are left out.
  bool drop_last = false;
  /// For evaluation: every sample is seen exactly once, so the last ranks may have one sample less. Loops over such an
  /// epoch must not communicate, or ranks wait for each other; read_all combines meters afterwards.
  bool exact = false;
};

/// Splits every epoch's order among the ranks: rank r takes elements r, r + num_ranks, r + 2 num_ranks, ...
///
/// The result is equal, element for element, to torch.utils.data.DistributedSampler with the same seed and epoch:
/// shuffled by `randperm` with a CPU generator seeded with seed + epoch. It has no state: the order of any epoch can be
/// computed at any time, as resuming requires.
/// Source  torch/utils/data/distributed.py.
class DistributedSampler {
 public:
  /// Errors  kInvalidArgument unless 0 <= rank < num_ranks and num_samples >= 0, and for drop_last with exact.
  explicit DistributedSampler(const DistributedSamplerOptions& options);
  /// Takes the rank and the number of ranks from `group`.
  DistributedSampler(const dist::Group& group, DistributedSamplerOptions options);

  /// Samples of this rank in an epoch; the same on all ranks, unless `exact`.
  int64_t size() const { return size_; }

  /// This rank's samples of epoch `epoch` (0, 1, ...), each in [0, num_samples).
  std::vector<int64_t> indices(int64_t epoch) const;

 private:
  DistributedSamplerOptions options_;
  int64_t size_ = 0;
};

}  // namespace yoke::train
