// yoke/train/shard/flat_layout.h -- lays tensors end to end and assigns parts to ranks. Pure: touches no tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::train {

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

/// The position of one tensor, in elements.
struct FlatItem {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  ///< Offset in the whole buffer.
  int64_t num_elements = 0;
};

/// The part of one tensor that one rank owns, in elements; empty if the length is 0.
struct FlatPart {
  int64_t first = 0;   ///< Index of the part's first element in the flattened tensor.
  int64_t offset = 0;  ///< Offset in the rank's range.
  int64_t length = 0;
};

/// Tensors of one dtype in one flat buffer, which is divided into one range per rank, all of the same length.
///
/// Tensors and ranges begin at multiples of `alignment` elements, so that they are aligned like allocated tensors. The
/// gaps belong to no tensor. A rank owns at most one part of a tensor.
class FlatLayout {
 public:
  /// REQUIRES: num_ranks and alignment are at least 1.
  FlatLayout(const std::vector<NamedShape>& tensors, int64_t num_ranks, int64_t alignment = 1);

  const std::vector<FlatItem>& items() const { return items_; }
  int64_t num_elements() const { return num_ranks_ * rank_elements_; }  ///< Length of the whole buffer, including gaps.
  int64_t rank_elements() const { return rank_elements_; }              ///< Length of one rank's range.

  FlatPart part(size_t item, int64_t rank) const;

 private:
  std::vector<FlatItem> items_;
  int64_t num_ranks_;
  int64_t rank_elements_ = 0;
};

/// The number of elements in 64 bytes, libtorch's alignment of CPU tensors. GPU kernels need less.
int64_t flat_alignment(int64_t element_bytes);

}  // namespace yoke::train
