// yoke/train/sharding.h -- tensors that are divided between ranks, told from others.
//
// A parameter of a sharded model has no elements, and a rank's part of it looks like any tensor. What would go wrong in
// silence with them (an optimizer over the one, a norm or a file of the other) asks here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace yoke::dist {
class Group;
}

namespace yoke::train {

class FullyShardedDataParallelBase;

/// What a tensor has to do with a parameter that is divided between ranks.
struct Sharding {
  enum class Role : uint8_t {
    kParameter,  ///< The model's own, without elements but in its unit's forward and backward.
    kPart,       ///< What this rank has of it, or of a state with its shape.
  };
  Role role = Role::kPart;
  std::vector<int64_t> shape;  ///< Of the whole.
  int64_t first = 0;           ///< Of a part: the first of its elements in the whole's contiguous order.
  dist::Group* group = nullptr;
  at::Tensor part;                                ///< Of a kParameter: what this rank has of it, also without elements.
  FullyShardedDataParallelBase* owner = nullptr;  ///< Of a kParameter.
};

/// Null for a tensor that is whole. Views and copies of a tensor are not marked.
const Sharding* sharding_of(const at::Tensor& tensor);

/// Marks `tensor`, a leaf, and calls `on_gradient`, if there is one, whenever its gradient has come.
void mark_sharded(const at::Tensor& tensor, Sharding sharding, std::function<void()> on_gradient = {});
void unmark_sharded(const at::Tensor& tensor);

/// The shape of a rank's part of a tensor: as many dimensions as the whole has, all 1 but the last, so that a rule such
/// as "no weight decay for what has one dimension" means the same for a part.
std::vector<int64_t> shape_of_part(const std::vector<int64_t>& whole, int64_t num_elements);

/// The shape of the parameter that `tensor` is, or is a part of.
std::vector<int64_t> whole_shape(const at::Tensor& tensor);

/// For what takes parameters or parts of them, and nothing in between.
/// Errors  kInvalidArgument, naming the tensor, for a sharded model's parameter, which has no elements at the moment.
void require_elements(const std::string& what, const std::string& name, const at::Tensor& tensor);
/// For what takes whole tensors.
/// Errors  kInvalidArgument, naming the tensor, for these and for parts.
void require_whole(const std::string& what, const std::string& name, const at::Tensor& tensor);

}  // namespace yoke::train
