// yoke/train/sharding.h -- marks tensors that are divided between ranks.
//
// A parameter of a sharded model has no elements outside of forward and backward, and a rank's part of it looks like
// any other tensor. Code that needs whole values (optimizers, norms, files) checks this mark, because its results would
// otherwise be silently wrong.
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

/// How a tensor is related to a parameter that is divided between ranks.
struct Sharding {
  enum class Role : uint8_t {
    kParameter,  ///< The model's parameter, which has elements only in its unit's forward and backward.
    kPart,       ///< This rank's part of a parameter, or of an optimizer state with the parameter's shape.
  };
  Role role = Role::kPart;
  std::vector<int64_t> shape;  ///< Shape of the whole parameter.
  int64_t first = 0;           ///< For a part: index of its first element in the flattened whole parameter.
  dist::Group* group = nullptr;
  at::Tensor part;                                ///< For a kParameter: this rank's part, which may have no elements.
  FullyShardedDataParallelBase* owner = nullptr;  ///< For a kParameter: its wrapper.
};

/// Returns null for a whole tensor. Views and copies of a tensor are not marked.
const Sharding* sharding_of(const at::Tensor& tensor);

/// Marks `tensor`, which must be a leaf, and calls `on_gradient`, if it is set, whenever a gradient arrives.
void mark_sharded(const at::Tensor& tensor, Sharding sharding, std::function<void()> on_gradient = {});
void unmark_sharded(const at::Tensor& tensor);

/// The shape of a rank's part of a tensor. The part has as many dimensions as the whole tensor, all of size 1 except
/// the last. So a rule such as "no weight decay for tensors with one dimension" gives the same result for a part.
std::vector<int64_t> shape_of_part(const std::vector<int64_t>& whole, int64_t num_elements);

/// The shape of the whole parameter, given the parameter or a part of it.
std::vector<int64_t> whole_shape(const at::Tensor& tensor);

/// Called by functions that accept parameters or parts of them.
/// Errors  kInvalidArgument, naming the tensor: it is a parameter of a sharded model, which has no elements now.
void require_elements(const std::string& what, const std::string& name, const at::Tensor& tensor);
/// Called by functions that accept only whole tensors.
/// Errors  kInvalidArgument, naming the tensor: it is a parameter of a sharded model, or a part.
void require_whole(const std::string& what, const std::string& name, const at::Tensor& tensor);

}  // namespace yoke::train
