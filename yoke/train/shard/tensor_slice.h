// yoke/train/shard/tensor_slice.h -- what one rank holds of tensors that several ranks share, and the whole again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace yoke::dist {
class World;
}

namespace yoke::train {

/// A rank's part of a named tensor: elements [first, first + values.numel()) of its contiguous order. The whole, when
/// it is on every rank; nothing, with empty values, when it is all on others.
struct TensorSlice {
  std::string name;
  std::vector<int64_t> shape;  ///< Of the whole.
  int64_t first = 0;
  at::Tensor values;  ///< 1-D, the dtype of the whole; the training's own memory, not a copy.
};
using TensorSlices = std::vector<TensorSlice>;

/// "GROUP/NAME" for every name, as train_state.h has it.
TensorSlices in_group(const std::string& group, TensorSlices slices);

/// The state of an optimizer that steps `parameters`: "KIND.NAME" of its state_dict, where a state with the shape of
/// the slice is a slice of a state with the parameter's shape, and a scalar is the same on all ranks.
///
/// Errors  kInvalidArgument for a state that is neither, or of no parameter.
TensorSlices slices_of_state(const TensorMap& state, const TensorSlices& parameters);

// Whole again.

/// Collective. Hands every tensor to `sink` on rank 0, whole, on the CPU; the others get nothing and keep nothing. One
/// tensor at a time, in an order that all ranks agree on.
/// Ranks   may hold other names than rank 0; what several hold the same part of is taken from the lowest.
/// Errors  kInvalidArgument on all ranks, naming the tensor, when ranks differ about its shape or dtype, or a part is
///         on no rank.
void gather_slices(dist::World& world, const TensorSlices& slices,
                   const std::function<void(const std::string& name, const at::Tensor& whole)>& sink);
/// Collective. All of them on rank 0; empty elsewhere.
TensorMap gather_slices(dist::World& world, const TensorSlices& slices);

// And back, from anything that can read parts of tensors: those of a TensorMap here, of a sharded_checkpoint.h there.

struct SliceSource {
  struct Whole {
    at::ScalarType dtype;
    std::vector<int64_t> shape;
  };
  std::map<std::string, Whole> tensors;
  /// Elements [first, first + length) of a tensor's contiguous order: 1-D, on any device.
  std::function<at::Tensor(const std::string& name, int64_t first, int64_t length)> read;
  std::string what = "the state";  ///< For messages.
};
SliceSource source_of(TensorMap whole);
/// The tensors of "GROUP/..." without the group.
SliceSource group_of(const SliceSource& source, const std::string& group);

/// All tensors, whole, on the CPU: copies, for a model that is not sharded.
TensorMap read_whole(const SliceSource& source);

/// Copies into the slices. All or nothing.
/// Errors  kInvalidArgument naming the first tensor, in the order of names, that one side lacks or that differs in
///         shape or dtype.
void load_slices(const SliceSource& source, const TensorSlices& slices);

/// The state_dict of an optimizer that steps `parameters`, for its load_state_dict.
/// Errors  kInvalidArgument naming a state of a parameter that is not there or has another shape.
TensorMap read_state(const SliceSource& source, const TensorSlices& parameters);

/// Pure. Which rank holds what of each tensor, when all have said it; for gather_slices and sharded_checkpoint.h.
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
std::vector<PlannedTensor> plan_slices(const std::vector<std::string>& descriptions_by_rank);

}  // namespace yoke::train
