// yoke/train/parallel/reducer.h -- c10d's Reducer, as DistributedDataParallel uses it; included by its sources only.
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

/// Adds what c10d keeps to itself: has this backward been averaged, and for which parameters did it wait?
class Reducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  /// Collective, from the end of the backward that follows. `outputs` is what that starts from, where unused parameters
  /// are to be found.
  void expect_backward(const std::vector<at::Tensor>& outputs);
  /// Of a static graph, after its first backward: keeps how often each gradient came. The Reducer counts those of
  /// micro-batches that are only accumulated too, and would then wait for as many in every later step.
  void learn_graph() { learned_ = numGradHooksTriggeredMap_; }
  bool is_finished() const { return !expect_autograd_hooks_; }
  /// Indices of the parameters that have not become ready since expect_backward.
  std::vector<size_t> missing() const;
  /// Indices of the parameters that a static graph's first step did not use and that have a gradient now.
  std::vector<size_t> newly_used() const;

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
