// yoke/train/checkpoint/tensor_slice.h -- what one rank holds of tensors that several ranks share, and the whole again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/train/checkpoint/tensor_source.h"
#include "yoke/train/named_tensors.h"

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// A rank's part of a named tensor: elements [first, first + values.numel()) of its contiguous order. It is the whole
/// where every rank has it, and nothing, with empty values, where it is all on others.
struct TensorSlice {
  std::string name;
  std::vector<int64_t> shape;  ///< Of the whole.
  int64_t first = 0;
  at::Tensor values;  ///< Any shape, the dtype of the whole; the training's own memory, not a copy.

  at::Tensor flat() const;  ///< The values in contiguous order, 1-D: a copy where they lie in another.
};
using TensorSlices = std::vector<TensorSlice>;

/// What this rank holds of a tensor: of a sharded model's parameter and of a part (sharding.h) its elements of the
/// whole, otherwise all.
TensorSlice slice_of(std::string name, const at::Tensor& tensor);
TensorSlices slices_of(const NamedTensors& tensors);

/// Pure. Which rank holds what of each tensor, once all have said what they have. What several hold alike is the lowest
/// rank's.
struct PlannedTensor {
  struct Part {
    int64_t rank = 0, first = 0, length = 0;
  };
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  std::vector<Part> parts;  ///< In order, covering the whole; none for a tensor without elements.
};
std::string describe_slices(const TensorSlices& slices);
/// Errors  kInvalidArgument, naming the tensor, when ranks differ about its shape or dtype, or an element is on no
/// rank.
std::vector<PlannedTensor> plan_slices(const std::vector<std::string>& descriptions_by_rank);

/// Collective. Hands every tensor to `sink` on rank 0, whole, on the CPU; the others get nothing and keep nothing. One
/// tensor at a time: in the order of rank 0's, then those that only other ranks hold.
/// Errors  on all ranks: those of plan_slices, and what `sink` throws.
void gather_tensors(dist::Group& group, const NamedTensors& tensors,
                    const std::function<void(const std::string& name, const at::Tensor& whole)>& sink);
/// Collective. All of them on rank 0, empty elsewhere: `write_pt("model.pt", to_pt(gather_tensors(group,
/// named_tensors(*model))))` is the same for a replicated and a sharded model.
NamedTensors gather_tensors(dist::Group& group, const NamedTensors& tensors);

/// Reads what `slices` are of `source` and checks it; the result copies it into them.
/// Errors  kInvalidArgument naming the first tensor, in the order of names, that one side lacks or that differs in
///         shape or dtype.
std::function<void()> prepare_to_load(const TensorSource& source, const TensorSlices& slices);

}  // namespace yoke::train
