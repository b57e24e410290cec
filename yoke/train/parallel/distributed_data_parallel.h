// yoke/train/parallel/distributed_data_parallel.h -- keeps the model replicas of all ranks equal.
//
//     DistributedDataParallel net(model, world);   // a module or its holder (torch::nn::Sequential)
//     const auto loss = loss_of(net(x), y);        // not model->forward(x)
//     loss.backward();                             // gradients are now the mean over ranks
//     optimizer.step(lr); optimizer.zero_grad();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "yoke/train/parallel/communication_hooks.h"
#include "yoke/train/parallel/parallel_module.h"

namespace yoke::train {

struct DistributedDataParallelOptions {
  int64_t bucket_bytes = 25 << 20;       ///< Size of one all-reduce; 25 MiB, PyTorch's default.
  int64_t first_bucket_bytes = 1 << 20;  ///< The first bucket is small, so that communication starts early.
  /// After each backward, rank 0's buffers (batch norm's running statistics) are copied to all ranks, so that
  /// evaluations and checkpoints are the same on all ranks. Training does not read these buffers. For speed, set this
  /// to false and call sync_buffers() before evaluations and checkpoints.
  bool broadcast_buffers = true;
  /// If true, gradients are views of the buckets, which saves a copy and half of the gradients' memory. Reset gradients
  /// to undefined by train::Sgd::zero_grad or Module::zero_grad. torch::optim's zero_grad tries to detach them and
  /// throws.
  bool gradient_as_bucket_view = false;
  /// If true, a step's loss may depend on some of the parameters only, and on different ones on each rank. A parameter
  /// that no rank used keeps its old gradient. The option costs a traversal of the graph and a small all-reduce per
  /// step.
  bool find_unused_parameters = false;
  /// If true, every step's loss must depend on the same parameters in the same way. Unused parameters and repeated uses
  /// (activation checkpoints) are then learned in the first step and cost nothing in later steps.
  bool static_graph = false;
  /// If true, backward leaves each rank's own gradients, and a ShardedOptimizer with GradientMean::kInStep, which was
  /// made of the model before, averages them in its step. If the ranks share memory, that is one pass over it, without
  /// all-reduces. A loss may then depend on some of the parameters only. What concerns buckets and graphs has no
  /// effect: bucket_bytes, first_bucket_bytes, gradient_as_bucket_view, find_unused_parameters, static_graph.
  bool average_in_step = false;
  /// Names of parameters and buffers that may differ between ranks: they are not compared, copied or averaged.
  std::vector<std::string> ignored;
  /// Replaces the all-reduce: fp16_hook, bf16_hook, power_sgd_hook, or your own function.
  CommunicationHook communication_hook;
};

struct JoinOptions {
  /// If true, gradients are divided by the number of all ranks, so that every sample has the same weight. If false,
  /// they are divided by the number of ranks that still have data, so that every step has the same weight.
  bool divide_by_all_ranks = true;
  /// If true, an error ends the join when the first rank has run out of data: that rank's finish() and the next forward
  /// of all other ranks throw kFailedPrecondition, which names that rank.
  bool throw_when_one_is_out = false;
};

/// The part of DistributedDataParallel that does not depend on the type of the model.
///
/// Forward       if gradients are enabled, prepares the next backward; several forwards before one backward are one
///               step. If gradients are disabled, it is the model's own forward, without communication.
/// Backward      is called as usual. When it ends, gradients hold the mean over ranks, and all ranks have rank 0's
///               buffers.
/// Accumulation  while a no_sync() object exists, forward and backward only add to this rank's gradients. The first
///               forward and backward after that average the sum once. A forward and its backward are on the same side
///               of the end of no_sync().
/// Shapes        every gradient keeps its parameter's shape and dtype; its value becomes the mean over the ranks. The
///               weight of an Embedding or EmbeddingBag with sparse(true) has sparse gradients.
/// Ranks         the ranks of `group`, the World or a part of it. Collective: all of them construct the object and take
///               the same number of steps, or they wait for each other until the timeout (see join()).
/// Errors        kInvalidArgument: parameters or buffers differ between ranks (names the first). kFailedPrecondition,
///               which names the parameter and is reported to the other ranks: the loss does not depend on the
///               parameter, and no option allows that; the parameter received a gradient that would not be averaged,
///               because the network was not called through this object, one forward had two backwards, or the forward
///               was under no_sync() and the backward is not; an optimizer of yoke::train has changed it by
///               gradients of no_sync() alone (noticed by the next forward); or the parameter requires a gradient but
///               did not at construction, or has another dtype or device than then. kTimeout: a rank does not arrive at
///               a step (names it). Exceptions of a forward are reported to the other ranks. After an error in a step
///               the object can only be destroyed.
/// Lifetime      `model` and `group` outlive it. Parameters must not be added or replaced during its lifetime.
/// Source        Li et al., "PyTorch Distributed", VLDB 2020, sec. 3.2; the work is done by libtorch's c10d::Reducer.
class DistributedDataParallelBase : public ParallelModule {
 public:
  ~DistributedDataParallelBase() override;

  NamedTensors parameters() const override;
  NamedTensors buffers() const override;
  /// Errors  kFailedPrecondition with average_in_step: the optimizer's clip_grad_norm knows the means.
  at::Tensor clip_grad_norm(double max_norm) override;
  void sync_buffers() override;
  dist::Group& group() const override;

  /// During its lifetime, forward and backward only add to this rank's gradients. Move-only.
  class NoSync {
   public:
    NoSync(NoSync&&) noexcept = default;
    ~NoSync();

   private:
    friend class DistributedDataParallelBase;
    explicit NoSync(std::shared_ptr<int64_t> depth);
    std::shared_ptr<int64_t> depth_;
  };
  [[nodiscard]] NoSync no_sync();

  /// The part of a training in which ranks may take different numbers of steps. Move-only.
  class Join {
   public:
    Join(Join&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    ~Join();  ///< Does not communicate. Without finish(), as after an exception, the other ranks wait for this rank.
    /// Collective. Called when this rank is out of data. Takes part in the steps of the other ranks with zero gradients
    /// until all ranks are out of data. Then all ranks get the parameters and buffers of the last rank to call finish()
    /// (if several are last, of the highest of them).
    void finish();

   private:
    friend class DistributedDataParallelBase;
    explicit Join(DistributedDataParallelBase& owner) : owner_(&owner) {}
    DistributedDataParallelBase* owner_;
  };

  /// All ranks call join() before their first step, and finish() after their last one. In between, ranks communicate
  /// only by forward and backward, and each step's forward is followed by its backward. A join costs a small all-reduce
  /// per step.
  /// Errors  kInvalidArgument: the model has a SyncBatchNorm, in whose communication a rank without data cannot take
  ///         part; gradients are averaged in the step of the optimizer; or divide_by_all_ranks is false and a
  ///         communication hook does the division.
  Join join(const JoinOptions& options = {});

 protected:
  /// Collective. Checks that all ranks have the same parameters and buffers, then copies rank 0's values to all ranks.
  DistributedDataParallelBase(torch::nn::Module& model, dist::Group& group,
                              const DistributedDataParallelOptions& options);

  bool communicates() const;  ///< Whether a forward at this moment would be part of a step of all ranks.
  void begin_forward();
  void take_output(const at::Tensor& output);  ///< Called with a tensor that forward returns.

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Averages gradients over all ranks while backward still runs. See DistributedDataParallelBase.
template <class M>
class DistributedDataParallel : public DistributedDataParallelBase {
 public:
  /// Collective. `model` is a module or the holder of one.
  DistributedDataParallel(M& model, dist::Group& group, const DistributedDataParallelOptions& options = {})
      : DistributedDataParallelBase(module_of(model), group, options), model_(model) {}

  /// Calls the model's `forward` and returns its result: a tensor, or a type described at each_tensor.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return run([&] { return implementation_of(model_).forward(std::forward<Inputs>(inputs)...); });
  }

  /// Runs any other computation with the model that leads to the loss: `net.run([&] { return model.loss(x, y); })`.
  template <class Forward>
  auto run(Forward&& forward) -> decltype(forward()) {
    if (!communicates()) {
      begin_forward();
      return forward();
    }
    return told_to_all([&] {
      begin_forward();
      auto output = forward();
      each_tensor(output, [this](const at::Tensor& tensor) { take_output(tensor); });
      return output;
    });
  }

  M& model() const { return model_; }

 private:
  M& model_;
};

}  // namespace yoke::train
