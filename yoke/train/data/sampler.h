// yoke/train/data/sampler.h -- which samples each rank sees in an epoch, and in which order.
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
  uint64_t seed = 0;  ///< The same on all ranks, or they see overlapping samples.
  /// The data set rarely divides by the ranks. False: its first samples are seen twice. True: its last ones are left
  /// out of this epoch.
  bool drop_last = false;
  /// Every sample once, for an evaluation: the last ranks may have one less. Loops over them communicate nothing, or
  /// ranks wait for each other; read_all puts meters together.
  bool exact = false;
};

/// Splits every epoch's order among the ranks: rank r takes elements r, r + num_ranks, r + 2 num_ranks, ...
///
/// Equal, element for element, to torch.utils.data.DistributedSampler with the same seed and epoch: shuffled by
/// `randperm` with a CPU generator seeded with seed + epoch. It keeps no state: the order of any epoch can be asked for
/// at any time, which is what resuming needs.
/// Source  torch/utils/data/distributed.py.
class DistributedSampler {
 public:
  /// Errors  kInvalidArgument unless 0 <= rank < num_ranks and num_samples >= 0, and for drop_last with exact.
  explicit DistributedSampler(const DistributedSamplerOptions& options);
  /// Of this rank of `group`, and of the number of its ranks.
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
