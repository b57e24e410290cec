// yoke/train/shard/detail/flat_parameters.h -- parameters of one dtype, of which this rank keeps a part: the store
// behind fully_sharded_data_parallel.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "yoke/dist/group.h"
#include "yoke/train/named_tensors.h"
#include "yoke/train/shard/flat_layout.h"

namespace yoke::train {

/// The layout of parameters that have one dtype. REQUIRES: there is at least one.
FlatLayout lay_out(const NamedTensors& parameters, int64_t num_ranks);

/// A gradient on its way from all ranks to their shards.
struct Reduction {
  at::Tensor whole;         ///< [ranks * n], this rank's contribution.
  at::Tensor shard;         ///< [n]: becomes the mean over ranks.
  bool is_reduced = false;  ///< Within the group: what is pending is the mean over replicas.
  dist::PendingCollective pending;
};

/// Sharded, the parameters have no elements. Gathered, they are views of one buffer on all ranks. The buffer's memory
/// comes and goes under one StorageImpl: what autograd saved in forward (a transposed weight, say) refers to that, and
/// finds the values again when they have been gathered for backward.
///
/// Ranks  construction, start_gather and start_reduce are collective.
class FlatParameters {
 public:
  /// Takes the values of the first rank. REQUIRES: not empty; one dtype; on all ranks the same names and shapes.
  /// `replicas`: the ranks that have the same part of another replica, or null.
  FlatParameters(dist::Group& group, dist::Group* replicas, NamedTensors parameters,
                 std::optional<at::ScalarType> compute_dtype);

  void start_gather();   ///< REQUIRES: not gathered, and none under way.
  void finish_gather();  ///< Waits; the parameters have their values.
  void free();           ///< Waits for a gather under way.
  bool is_gathered() const { return is_gathered_; }
  bool is_gathering() const { return is_gathering_; }

  /// Whether somebody gave the parameter other memory (torch::load does): the next gather would drop it.
  bool is_replaced(size_t parameter) const;

  /// Takes over the parameter's gradient, a dense one, and leaves it undefined.
  void take_gradient(size_t parameter);
  bool has_gradient() const { return gradient_.defined(); }
  size_t arrived() const;  ///< The first parameter with a gradient. REQUIRES: has_gradient().
  /// Parameters without a gradient count as zero.
  Reduction start_reduce();
  /// Waits until the gradient is reduced, and starts to average the shard between the replicas. Collective over them;
  /// a second call does nothing.
  void start_average(Reduction& reduction);
  /// Waits, and adds to the gradients of the shards.
  void finish_reduce(Reduction reduction);

  size_t size() const { return parameters_.size(); }
  const std::string& name(size_t parameter) const { return parameters_[parameter].first; }
  const at::Tensor& parameter(size_t parameter) const { return parameters_[parameter].second; }
  /// A leaf whose gradient is the shard's; without elements when other ranks have all.
  const at::Tensor& shard(size_t parameter) const { return shards_[parameter]; }

 private:
  dist::Group* group_;
  dist::Group* replicas_;  ///< Null: there is one.
  NamedTensors parameters_;
  FlatLayout layout_;
  at::Tensor flat_shard_;           ///< [n], this rank's.
  at::Tensor whole_;                ///< [ranks * n], the memory of which comes and goes.
  std::vector<at::Tensor> views_;   ///< Of whole_, beside parameters_.
  std::vector<at::Tensor> shards_;  ///< Of flat_shard_, beside parameters_.
  at::Tensor nothing_;              ///< What a sharded parameter holds.
  dist::PendingCollective gather_;
  bool is_gathered_ = false, is_gathering_ = false;

  at::Tensor gradient_;  ///< [ranks * n] while gradients arrive.
  std::vector<bool> has_arrived_;

  /// While sharded, a parameter whose shard has a gradient has an empty one: gone at the next gather, it says that
  /// Module::zero_grad was called, and the shard's goes too.
  void mark_gradients();
  void take_marks();
  std::vector<bool> is_marked_;
};

}  // namespace yoke::train
