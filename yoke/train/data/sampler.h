// yoke/train/data/sampler.h -- decides which samples each rank sees in an epoch, and in which order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace yoke::dist {
class Group;
}

namespace yoke::train {

namespace detail {
class EpochDivision;
}

/// Returns the sample at a given position of one epoch. Thread-safe.
using Order = std::function<int64_t(int64_t position)>;

/// The order of the samples of all ranks, as a function of the epoch. A Sampler has no state, so the order of any epoch
/// can be computed at any time, which resuming needs. All ranks must make the same sampler.
struct Sampler {
  int64_t num_positions = 0;                  ///< Samples in an epoch over all ranks.
  std::function<Order(int64_t epoch)> order;  ///< Epochs are 0, 1, ...
};

/// The order 0, 1, 2, ...
Sampler in_order(int64_t num_samples);

/// Each sample once, in a different order in each epoch. Up to a million samples the order is that of PyTorch's
/// `randperm` with a CPU generator seeded with seed + epoch. Larger permutations are computed position by position (by
/// a Feistel network). So an epoch of any size can begin at any position without delay, and nothing is stored.
Sampler shuffled(int64_t num_samples, uint64_t seed);

/// Shuffles a part of the samples, such as one that random_split() returns.
Sampler shuffled(std::vector<int64_t> samples, uint64_t seed);

/// Draws `num_positions` samples with replacement, each with a probability proportional to its weight.
/// Errors  kInvalidArgument: a weight is negative or not finite, or all are zero.
Sampler weighted(const std::vector<double>& weights, int64_t num_positions, uint64_t seed);

/// Draws every class equally often: an epoch has as many samples of each class as the largest class has. Samples of
/// smaller classes are repeated. Within a class, the numbers of repetitions differ by at most one. `classes` has the
/// class of each sample, 0 or above.
/// Errors  kInvalidArgument: a class is negative, or there are no samples.
Sampler balanced(const std::vector<int64_t>& classes, uint64_t seed);

struct ByLengthOptions {
  int64_t batch_size = 1;    ///< Samples in a batch over all ranks.
  int64_t num_batches = 50;  ///< Batches that are sorted together; more means less padding and less randomness.
  uint64_t seed = 0;
};
/// Each sample once, in batches of similar lengths, so that little padding is needed. The samples are shuffled and cut
/// into pieces of num_batches batches. Each piece is sorted by length; then the batches are shuffled.
/// Errors  kInvalidArgument: an option below 1.
Sampler by_length(std::vector<int64_t> lengths, const ByLengthOptions& options);

/// Each sample once, for sources that read consecutive samples fast, such as tar files. Shuffles the shards,
/// concatenates their samples, and shuffles within windows of `window` samples. `shard_sizes` are the numbers of
/// samples of the shards, in the source's order.
/// Errors  kInvalidArgument: a negative size, or a window below 1.
Sampler shuffled_shards(const std::vector<int64_t>& shard_sizes, int64_t window, uint64_t seed);

/// Divides [0, num_samples) at random into parts with the given fractions, which add up to 1. Sizes are rounded down,
/// and the first parts get one of the remaining samples each. For up to a million samples, the parts equal those of
/// PyTorch's `random_split` with a generator of this seed.
/// Errors  kInvalidArgument: a fraction is not in [0, 1], or they do not add up to 1.
std::vector<std::vector<int64_t>> random_split(int64_t num_samples, const std::vector<double>& fractions,
                                               uint64_t seed);

/// Applies random_split to each class, so every part has the same share of each class, to within one sample.
std::vector<std::vector<int64_t>> stratified_split(const std::vector<int64_t>& classes,
                                                   const std::vector<double>& fractions, uint64_t seed);

struct DistributedSamplerOptions {
  int64_t num_samples = 0;  ///< The number in the whole data set.
  int64_t num_ranks = 1;
  int64_t rank = 0;
  bool shuffle = true;
  uint64_t seed = 0;  ///< Must be the same on all ranks, or they see overlapping samples.
  /// Used if the number of samples is not a multiple of the number of ranks. If false, some of the epoch's first
  /// samples are seen twice. If true, some of its last samples are left out.
  bool drop_last = false;
  /// For evaluation: every sample is seen exactly once, so the last ranks may have one sample less. Do not call
  /// collectives inside a loop over such samples: a rank without a last one would not call them, and the others would
  /// wait forever. After the loop, read_all (meter.h) combines the meters. A Loader gives all ranks the same number of
  /// batches (LoaderOptions::exact).
  bool exact = false;
  /// Gives the order instead of `num_samples`, `shuffle` and `seed`.
  std::optional<Sampler> sampler = {};
};

/// Splits every epoch's order among the ranks: rank r takes elements r, r + num_ranks, r + 2 num_ranks, ... An epoch of
/// which the first samples were read, by any number of ranks, is resumed by splitting the rest in the same way.
///
/// Without `sampler` and up to a million samples, the result is equal, element for element, to
/// torch.utils.data.DistributedSampler with the same seed and epoch.
/// Source  torch/utils/data/distributed.py.
class DistributedSampler {
 public:
  /// Errors  kInvalidArgument unless 0 <= rank < num_ranks and num_samples >= 0, and for drop_last with exact.
  explicit DistributedSampler(const DistributedSamplerOptions& options);
  /// Takes the rank and the number of ranks from `group`.
  DistributedSampler(const dist::Group& group, DistributedSamplerOptions options);

  /// The number of samples of this rank in an epoch, which is equal on all ranks unless `exact`. If the epoch is
  /// resumed behind the first `first` samples of the order of all ranks, the number of those that are left for this
  /// rank.
  int64_t size(int64_t first = 0) const;

  /// The order of this rank's samples in epoch `epoch` (0, 1, ...), for positions in [0, size(first)).
  Order order(int64_t epoch, int64_t first = 0) const;

  /// This rank's samples of epoch `epoch`, or of its rest.
  std::vector<int64_t> indices(int64_t epoch, int64_t first = 0) const;

  int64_t num_positions() const { return options_.sampler->num_positions; }  ///< Samples in an epoch over all ranks.

 private:
  detail::EpochDivision division(int64_t first) const;

  DistributedSamplerOptions options_;
};

}  // namespace yoke::train
