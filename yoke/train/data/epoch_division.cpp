#include "yoke/train/data/detail/epoch_division.h"

#include <algorithm>

namespace yoke::train::detail {

EpochDivision::EpochDivision(const EpochDivisionOptions& options) : options_(options) {
  const int64_t num_left = std::max<int64_t>(0, options.num_positions - options.first), size = options.batch_size;
  const int64_t num_each = num_left / options.num_ranks, rest = num_left % options.num_ranks;
  place_ = (options.rank + options.num_ranks - options.first % options.num_ranks) % options.num_ranks;
  num_samples_ = num_each;
  if (options.exact ? place_ < rest : !options.drop_last && rest != 0) ++num_samples_;
  num_batches_ = num_samples_ / size + (!options.drop_last && num_samples_ % size != 0 ? 1 : 0);
  has_single_last_ = options.exact && rest != 0 && num_each > 0 && num_each % size == 0 && size > 1;
  if (has_single_last_) num_batches_ = num_each / size + 1;
}

std::pair<int64_t, int64_t> EpochDivision::batch(int64_t number) const {
  const int64_t first = number * options_.batch_size;
  if (has_single_last_ && number == num_batches_ - 1) return {num_samples_ - 1, 1};
  const int64_t end = has_single_last_ ? num_samples_ - 1 : num_samples_;
  return {first, std::min(options_.batch_size, end - first)};
}

int64_t EpochDivision::position(int64_t own) const { return options_.first + place_ + own * options_.num_ranks; }

int64_t EpochDivision::sample_after(int64_t num_batches) const {
  const int64_t num_ranks = options_.num_ranks, num_positions = std::max(options_.num_positions, options_.first);
  const int64_t sample = options_.first + num_batches * options_.batch_size * num_ranks;
  if (has_single_last_ && num_batches == num_batches_ - 1) return std::min(sample, num_positions - num_ranks);
  return std::min(sample, num_positions);
}

}  // namespace yoke::train::detail
