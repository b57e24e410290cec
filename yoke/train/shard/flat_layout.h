// yoke/train/shard/flat_layout.h -- tensors laid end to end, and which rank owns which part. Pure: no tensor is
// touched.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::train {

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

/// One tensor's place, in elements.
struct FlatItem {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  ///< From the beginning of all.
  int64_t num_elements = 0;
};

/// What one rank owns of one tensor, in elements; nothing when the length is 0.
struct FlatPart {
  int64_t first = 0;   ///< In the tensor, in the order of its contiguous elements.
  int64_t offset = 0;  ///< In the rank's range.
  int64_t length = 0;
};

/// Tensors of one dtype in one flat buffer, divided into one range a rank, all of the same length.
///
/// Tensors and ranges begin at multiples of `alignment` elements, so that kernels find what an allocator would give
/// them; the gaps belong to nobody. A rank owns at most one part of a tensor.
class FlatLayout {
 public:
  /// REQUIRES: num_ranks and alignment at least 1.
  FlatLayout(const std::vector<NamedShape>& tensors, int64_t num_ranks, int64_t alignment = 1);

  const std::vector<FlatItem>& items() const { return items_; }
  int64_t num_elements() const { return num_ranks_ * rank_elements_; }  ///< Of the whole buffer, gaps included.
  int64_t rank_elements() const { return rank_elements_; }              ///< Of one rank's range.

  FlatPart part(size_t item, int64_t rank) const;

 private:
  std::vector<FlatItem> items_;
  int64_t num_ranks_;
  int64_t rank_elements_ = 0;
};

/// Elements of 64 bytes, libtorch's own alignment of a tensor on the CPU; what GPU kernels want is less.
int64_t flat_alignment(int64_t element_bytes);

}  // namespace yoke::train
