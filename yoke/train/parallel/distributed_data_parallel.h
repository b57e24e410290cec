// yoke/train/parallel/distributed_data_parallel.h -- keeps one model replica per rank in step.
//
//     DistributedDataParallel net(model, world);   // a module, or its holder (torch::nn::Sequential)
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
  int64_t first_bucket_bytes = 1 << 20;  ///< The first to be ready is small, so that communication starts early.
  /// Each backward ends by copying rank 0's buffers (batch norm's running statistics) to all, so that evaluations and
  /// checkpoints are the same on all ranks. Training does not read them: where speed counts, set this to false and call
  /// sync_buffers() before evaluations and checkpoints.
  bool broadcast_buffers = true;
  /// Gradients live in the buckets themselves: no copy, and their memory once instead of twice. They must then be reset
  /// to undefined by train::Sgd::zero_grad or Module::zero_grad; torch::optim's zero_grad detaches them and throws.
  bool gradient_as_bucket_view = false;
  /// A step's loss need not depend on all parameters, nor on the same ones on all ranks. A parameter that no rank used
  /// keeps its gradient as it was. Costs a walk over the graph and a small all-reduce a step.
  bool find_unused_parameters = false;
  /// Every step's loss depends on the same parameters in the same way, whichever they are: unused ones and several uses
  /// (activation checkpoints) are learned in the first step, and cost nothing in the later ones.
  bool static_graph = false;
  /// Names of parameters and buffers that stay each rank's own: neither compared, copied nor averaged.
  std::vector<std::string> ignored;
  /// Takes the place of the all-reduce; made by fp16_hook, bf16_hook, power_sgd_hook, or by you.
  CommunicationHook communication_hook;
};

struct JoinOptions {
  /// Gradients are divided by the number of all ranks, so that every sample weighs the same; false divides by the ranks
  /// that still have data, so that every step weighs the same.
  bool divide_by_all_ranks = true;
  /// When the first rank has run out of data, the next forward of the others and that rank's finish throw
  /// FailedPrecondition, which names it.
  bool throw_when_one_is_out = false;
};

/// What DistributedDataParallel does, whatever the type of the model.
///
/// Forward       called where gradients are enabled, it prepares the backward that follows; several calls before one
///               backward are one step. Elsewhere it is the model's own forward, and communicates nothing.
/// Backward      plain. It ends with the mean over ranks in the gradients, and with rank 0's buffers on all ranks.
/// Accumulation  under no_sync() forward and backward add to this rank's gradients alone; the next backward outside of
///               it averages the sum, once.
/// Shapes        every gradient keeps its parameter's shape and dtype; its value becomes the mean over ranks. The
///               weight of an Embedding or EmbeddingBag with sparse(true) has sparse gradients.
/// Ranks         those of `group`, the World or a part of it. Collective: all of them construct it and take the same
///               number of steps, or the others wait; see join().
/// Errors        InvalidArgument if parameters or buffers differ between ranks (names the first). FailedPrecondition,
///               of which the other ranks are told, naming the parameter: a loss does not depend on it and no option
///               allows that; it has got a gradient that would not be averaged, since the network was not called
///               through this object, or since one forward had two backwards; it requires a gradient and did not when
///               this was made. Timeout if a rank does not come to a step (names it). What a forward throws is told to
///               the other ranks. After an error in a step the object can only be destroyed.
/// Lifetime      `model` and `group` outlive it; parameters are neither added nor replaced while it lives.
/// Source        Li et al., "PyTorch Distributed", VLDB 2020, sec. 3.2; the work is done by libtorch's c10d::Reducer.
class DistributedDataParallelBase : public ParallelModule {
 public:
  ~DistributedDataParallelBase() override;

  NamedTensors parameters() const override;
  NamedTensors buffers() const override;
  at::Tensor clip_grad_norm(double max_norm) override;
  void sync_buffers() override;
  dist::Group& group() const override;

  /// While it lives, forward and backward only add to this rank's gradients. Move-only.
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
    ~Join();  ///< Without finish(), as when an exception passes: no communication; the others find this rank missing.
    /// Collective. Out of data: takes part in the others' steps with zero gradients until they are out too. Then all
    /// ranks have the parameters and buffers of the last to come here (of several the one with the highest rank).
    void finish();

   private:
    friend class DistributedDataParallelBase;
    explicit Join(DistributedDataParallelBase& owner) : owner_(&owner) {}
    DistributedDataParallelBase* owner_;
  };

  /// All ranks call it before their first step and finish() after their last. In between they communicate by forward
  /// and backward alone; each step's forward is followed by its backward. Costs a small all-reduce a step.
  /// Errors  InvalidArgument: the model has a SyncBatchNorm, whose communication nobody could take part in; or
  ///         divide_by_all_ranks is false and a communication hook does the division.
  Join join(const JoinOptions& options = {});

 protected:
  /// Collective. Checks that all ranks have the same parameters and buffers, then copies rank 0's values to all.
  DistributedDataParallelBase(torch::nn::Module& model, dist::Group& group,
                              const DistributedDataParallelOptions& options);

  bool communicates() const;  ///< Whether a forward now is part of a step that all ranks take.
  void begin_forward();
  void take_output(const at::Tensor& output);  ///< A tensor that forward returns.

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

  /// `forward` of the model. Returns what that does: a tensor, or see each_tensor.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return run([&] { return implementation_of(model_).forward(std::forward<Inputs>(inputs)...); });
  }

  /// Any other computation with the model that leads to the loss: `net.run([&] { return model.loss(x, y); })`.
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
