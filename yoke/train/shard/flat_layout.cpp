#include "yoke/train/shard/flat_layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace yoke::train {
namespace {

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

FlatLayout::FlatLayout(const std::vector<NamedShape>& tensors, int64_t num_ranks, int64_t alignment)
    : num_ranks_(num_ranks) {
  int64_t end = 0;
  for (const auto& [name, shape] : tensors) {
    const auto size = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const auto offset = round_up(end, alignment);
    items_.push_back({name, shape, offset, size});
    end = offset + size;
  }
  rank_elements_ = round_up((end + num_ranks - 1) / num_ranks, alignment);
}

FlatPart FlatLayout::part(size_t item, int64_t rank) const {
  const auto& [name, shape, offset, size] = items_[item];
  const int64_t range_begin = rank * rank_elements_;
  const int64_t begin = std::max(offset, range_begin);
  const int64_t end = std::min(offset + size, range_begin + rank_elements_);
  if (begin >= end) return {};
  return {begin - offset, begin - range_begin, end - begin};
}

int64_t flat_alignment(int64_t element_bytes) { return std::max<int64_t>(1, 64 / element_bytes); }

}  // namespace yoke::train
