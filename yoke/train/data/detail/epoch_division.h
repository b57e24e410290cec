// yoke/train/data/detail/epoch_division.h -- which samples of an epoch's order each batch of a rank has. Pure.
#pragma once

#include <cstdint>
#include <utility>

namespace yoke::train::detail {

struct EpochDivisionOptions {
  int64_t num_positions = 0;  ///< Samples in the epoch's order, over all ranks.
  int64_t first = 0;  ///< So many of them were read before, by any number of ranks, and belong to no batch here.
  int64_t num_ranks = 1, rank = 0;
  int64_t batch_size = 1;  ///< Of a rank.
  bool exact = false, drop_last = false;
};

/// Divides the samples of an epoch's order from number `first` on. The samples that all ranks have in a batch are
/// neighbours: the next batch_size * num_ranks of the order. Number i of the order belongs to rank i % num_ranks. So
/// after any batch a beginning of the order has been read, and other ranks can continue behind it.
///
/// If samples are left that do not fill the ranks' last batch equally: with `drop_last` they are left out, with `exact`
/// some ranks have one sample less, and otherwise the order continues at its beginning. With `exact`, all ranks have
/// the same number of batches nevertheless if they can: where the first ranks have a sample more, and it alone would be
/// a batch, the other ranks have one sample less in the batch before.
class EpochDivision {
 public:
  EpochDivision() = default;
  explicit EpochDivision(const EpochDivisionOptions& options);

  int64_t num_samples() const { return num_samples_; }  ///< Of this rank.
  int64_t num_batches() const { return num_batches_; }
  /// The first of this rank's samples that a batch has, and their number.
  std::pair<int64_t, int64_t> batch(int64_t number) const;
  int64_t position(int64_t own) const;  ///< The number in the order of one of this rank's samples.
  /// How many samples of the order were read, with those before `first`, after this many batches of all ranks.
  int64_t sample_after(int64_t num_batches) const;

 private:
  EpochDivisionOptions options_;
  int64_t place_ = 0;  ///< Of this rank among the ranks, beginning with that of number `first`.
  int64_t num_samples_ = 0, num_batches_ = 0;
  bool has_single_last_ = false;  ///< The last batch of each rank has one sample.
};

}  // namespace yoke::train::detail
