// yoke/train/parallel/detail/reducer.h -- c10d's Reducer, as DistributedDataParallel uses it. Only the sources of
// DistributedDataParallel include this.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <vector>

#include "yoke/train/named_tensors.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace yoke::train {

/// Adds functions that c10d does not expose, such as the parameters for which a backward still waits.
class Reducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  /// Called before the forward of a step, so that the next gradients are averaged. The backward is then collective.
  void expect_backward();
  bool is_expecting() const { return expect_autograd_hooks_; }
  /// Returns whether a gradient has arrived since expect_backward.
  bool has_begun() const;
  /// Called at the end of a backward if unused parameters are allowed. Treats parameters without a gradient as unused,
  /// and starts the all-reduces that wait for them.
  void take_missing_for_unused();
  /// Whether the buckets stay as they are from now on.
  bool has_its_buckets() const { return !should_rebuild_buckets(); }
  /// Whether `tensor` is the memory of a whole bucket.
  bool has_bucket(const at::Tensor& tensor) const;
  /// Moves the buckets into memory that the ranks of a host share, if the group has it, so that their all-reduces copy
  /// nothing. Called when there are new buckets, and no backward is running.
  void share_buckets();
  /// Waits for all all-reduces in flight, which are those of `group`, and throws their errors.
  void wait(const dist::Group& group);
  /// Called after the first backward of a static graph: stores how often each gradient arrived. Without this, the
  /// Reducer would also count the gradients of accumulated micro-batches, and wait for as many in every later step.
  void learn_graph() { learned_ = numGradHooksTriggeredMap_; }
  /// Indices of the parameters that have not become ready since expect_backward.
  std::vector<size_t> missing() const;
  /// Indices of the parameters that a static graph's first step did not use.
  std::vector<size_t> never_used() const;

 private:
  std::unordered_map<size_t, int> learned_;  ///< Empty before learn_graph.
};

/// Runs a CommunicationHook for the Reducer, which expects futures. Each future is complete at once. When the Reducer
/// asks for a bucket's result, the function that the hook returned runs.
class HookRunner : public c10d::CommHookInterface {
 public:
  explicit HookRunner(CommunicationHook hook) : hook_(std::move(hook)) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

 private:
  CommunicationHook hook_;
  std::deque<std::function<at::Tensor()>> pending_;
};

/// Returns for each parameter whether its gradient is sparse: true for the weight of an Embedding or EmbeddingBag with
/// sparse(true) below `model`.
std::vector<bool> expects_sparse(const torch::nn::Module& model, const NamedTensors& parameters);

std::shared_ptr<Reducer> make_reducer(const NamedTensors& parameters, std::vector<bool> expect_sparse,
                                      c10::intrusive_ptr<c10d::ProcessGroup> group,
                                      const DistributedDataParallelOptions& options);

}  // namespace yoke::train
