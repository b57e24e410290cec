// yoke/train/shard/detail/flat_parameters.h -- stores this rank's part of parameters of one dtype, for
// fully_sharded_data_parallel.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "yoke/dist/group.h"
#include "yoke/train/named_tensors.h"
#include "yoke/train/shard/flat_layout.h"

namespace yoke::train {

/// The layout of parameters of one dtype. REQUIRES: `parameters` is not empty.
FlatLayout lay_out(const NamedTensors& parameters, int64_t num_ranks);

/// A reduction in flight: all ranks' gradients are summed, and each rank gets its shard of the sum.
struct Reduction {
  at::Tensor whole;         ///< [ranks * n]: this rank's contribution.
  at::Tensor shard;         ///< [n]: this rank's shard of the summed gradients, and then of their mean over the ranks.
  bool is_reduced = false;  ///< Reduced within the group; the mean over replicas may still be pending.
  dist::PendingCollective pending;
};

/// While sharded, the parameters have no elements. While gathered, they are views of one buffer. The buffer's memory is
/// allocated and freed, but its StorageImpl stays the same. In forward, autograd saves tensors that refer to this
/// storage, such as a transposed weight. After the gather for backward, these tensors have their values again.
///
/// Ranks  construction, start_gather and start_reduce are collective.
class FlatParameters {
 public:
  /// Takes the values of the first rank. `replicas` is a group with one rank of each replica: the ranks that hold the
  /// same part as this rank. `replicas` is null if there is only one replica. REQUIRES: `parameters` is not empty, has
  /// one dtype, and has the same names and shapes on all ranks.
  FlatParameters(dist::Group& group, dist::Group* replicas, NamedTensors parameters,
                 std::optional<at::ScalarType> compute_dtype);

  void start_gather();   ///< REQUIRES: not gathered, and no gather in progress.
  void finish_gather();  ///< Waits until the parameters have their values.
  void free();           ///< Waits for a gather in progress before it frees the memory.
  void forget_step();    ///< Drops what a gather or a backward has left that ended with an error.
  bool is_gathered() const { return is_gathered_; }
  bool is_gathering() const { return is_gathering_; }

  /// Whether the parameter was given new memory (as by torch::load). The next gather would drop the values in this
  /// memory.
  bool is_replaced(size_t parameter) const;

  /// Moves the parameter's gradient, which must be dense, into the buffer and leaves it undefined.
  void take_gradient(size_t parameter);
  bool has_gradient() const { return gradient_.defined(); }
  size_t arrived() const;  ///< The first parameter with a gradient. REQUIRES: has_gradient().
  /// Starts to reduce the gradients. Parameters without a gradient count as zero.
  Reduction start_reduce();
  /// Waits until the gradient is reduced, and starts to average the shard over the replicas. Collective over the
  /// replicas. A second call has no effect.
  void start_average(Reduction& reduction);
  /// Waits for the reduction, and adds the result to the gradients of the shards.
  void finish_reduce(Reduction reduction);

  size_t size() const { return parameters_.size(); }
  const std::string& name(size_t parameter) const { return parameters_[parameter].first; }
  const at::Tensor& parameter(size_t parameter) const { return parameters_[parameter].second; }
  /// This rank's part, a leaf tensor whose grad() is set. It is empty if other ranks have all elements of the
  /// parameter.
  const at::Tensor& shard(size_t parameter) const { return shards_[parameter]; }

 private:
  dist::Group* group_;
  dist::Group* replicas_;  ///< Null if there is only one replica.
  NamedTensors parameters_;
  FlatLayout layout_;
  at::Tensor flat_shard_;           ///< [n], this rank's part.
  at::Tensor whole_;                ///< [ranks * n]; its memory exists only while gathered.
  std::vector<at::Tensor> views_;   ///< Views of whole_, in the order of parameters_.
  std::vector<at::Tensor> shards_;  ///< Views of flat_shard_, in the order of parameters_.
  at::Tensor nothing_;              ///< The value of a sharded parameter: a placeholder (refusals.h).
  dist::PendingCollective gather_;
  bool is_gathered_ = false, is_gathering_ = false;

  at::Tensor gradient_;  ///< [ranks * n] while gradients arrive.
  std::vector<bool> has_arrived_;

  /// While sharded, a parameter has a placeholder (refusals.h) as its gradient if its shard has a gradient. If the
  /// placeholder is missing at the next gather, Module::zero_grad was called. Then the shard's gradient is dropped too.
  void mark_gradients();
  void take_marks();
  std::vector<bool> is_marked_;
};

}  // namespace yoke::train
