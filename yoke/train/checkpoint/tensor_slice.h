// yoke/train/checkpoint/tensor_slice.h -- one rank's parts of tensors that are divided between ranks, and how to gather
// them.
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

/// A rank's part of a named tensor: elements [first, first + values.numel()) of its contiguous order. If every rank has
/// the whole tensor, the slice is the whole. If this rank has no part of it, `values` is empty.
struct TensorSlice {
  std::string name;
  std::vector<int64_t> shape;  ///< Shape of the whole tensor.
  int64_t first = 0;
  at::Tensor values;  ///< Any shape, dtype of the whole; the training's own memory, not a copy.

  at::Tensor flat() const;  ///< The values in contiguous order, 1-D; a copy if their memory has a different order.
};
using TensorSlices = std::vector<TensorSlice>;

/// Returns this rank's slice of a tensor: some of its elements if `tensor` is a sharded model's parameter or a part of
/// one (sharding.h), otherwise all elements.
TensorSlice slice_of(std::string name, const at::Tensor& tensor);
TensorSlices slices_of(const NamedTensors& tensors);

/// Which ranks provide which elements of a tensor when it is saved or gathered. If several ranks hold an element, the
/// lowest of them provides it.
struct PlannedTensor {
  struct Part {
    int64_t rank = 0, first = 0, length = 0;
  };
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  std::vector<Part> parts;  ///< In order, covering the whole tensor; empty for a tensor without elements.
};
std::string describe_slices(const TensorSlices& slices);
/// Computes the plan from the descriptions of all ranks' slices (describe_slices). Pure.
/// Errors  kInvalidArgument, naming the tensor: its shape or dtype differs between ranks, or no rank has one of its
///         elements.
std::vector<PlannedTensor> plan_slices(const std::vector<std::string>& descriptions_by_rank);

/// Collective. Passes every tensor to `sink` on rank 0, whole and on the CPU. The other ranks receive nothing. One
/// tensor is handled at a time: first those of rank 0, in its order, then those that only other ranks hold.
/// Errors  on all ranks: those of plan_slices, and what `sink` throws.
void gather_tensors(dist::Group& group, const NamedTensors& tensors,
                    const std::function<void(const std::string& name, const at::Tensor& whole)>& sink);
/// Collective. Returns all tensors on rank 0 and nothing on other ranks: `write_pt("model.pt",
/// to_pt(gather_tensors(group, named_tensors(*model))))` works for a replicated and for a sharded model.
NamedTensors gather_tensors(dist::Group& group, const NamedTensors& tensors);

/// Reads the elements of `slices` from `source` and checks them. Returns a function that copies the elements into
/// `slices`.
/// Errors  kInvalidArgument naming the first tensor, in the order of names, that one side lacks or that differs in
///         shape or dtype.
std::function<void()> prepare_to_load(const TensorSource& source, const TensorSlices& slices);

}  // namespace yoke::train
