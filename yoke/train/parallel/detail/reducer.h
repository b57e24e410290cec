// yoke/train/parallel/detail/reducer.h -- c10d's Reducer, as DistributedDataParallel uses it; included by its sources
// only.
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

/// Adds what c10d keeps to itself: for which parameters does this backward wait?
class Reducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  /// Before the forward of a step: the next gradients are averaged. Collective from the end of their backward on.
  void expect_backward();
  bool is_expecting() const { return expect_autograd_hooks_; }
  /// Whether a gradient has come since expect_backward.
  bool has_begun() const;
  /// At the end of a backward, where unused parameters are allowed: takes those without a gradient for unused, and
  /// starts the all-reduces that wait for them.
  void take_missing_for_unused();
  /// Waits for all all-reduces under way, and throws what they throw.
  void wait();
  /// Of a static graph, after its first backward: keeps how often each gradient came. The Reducer counts those of
  /// micro-batches that are only accumulated too, and would then wait for as many in every later step.
  void learn_graph() { learned_ = numGradHooksTriggeredMap_; }
  /// Indices of the parameters that have not become ready since expect_backward.
  std::vector<size_t> missing() const;
  /// Indices of the parameters that a static graph's first step did not use.
  std::vector<size_t> never_used() const;

 private:
  std::unordered_map<size_t, int> learned_;  ///< Empty before learn_graph.
};

/// Runs a CommunicationHook for the Reducer, which takes futures: each is complete at once, and the hook's second part
/// runs when the Reducer asks for the result, bucket by bucket.
class HookRunner : public c10d::CommHookInterface {
 public:
  explicit HookRunner(CommunicationHook hook) : hook_(std::move(hook)) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;
  size_t num_pending() const { return pending_.size(); }

 private:
  CommunicationHook hook_;
  std::deque<std::function<at::Tensor()>> pending_;
};

/// Whether the gradient of each parameter is sparse: the weight of an Embedding or EmbeddingBag below `model` that says
/// so.
std::vector<bool> expects_sparse(const torch::nn::Module& model, const NamedTensors& parameters);

std::shared_ptr<Reducer> make_reducer(const NamedTensors& parameters, std::vector<bool> expect_sparse,
                                      c10::intrusive_ptr<c10d::ProcessGroup> group,
                                      const DistributedDataParallelOptions& options);

}  // namespace yoke::train
