// yoke/train/parallel/distributed_data_parallel.h -- keeps one model replica per rank in step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "yoke/train/parallel/communication_hooks.h"

namespace torch::nn {
class Module;
}
namespace yoke::dist {
class World;
}

namespace yoke::train {

struct DistributedDataParallelOptions {
  int64_t bucket_bytes = 25 << 20;       ///< Size of one all-reduce; 25 MiB, PyTorch's default.
  int64_t first_bucket_bytes = 1 << 20;  ///< The first to be ready is small, so that communication starts early.
  /// Each begin_step copies rank 0's buffers (batch norm's running statistics) to all. Training does not read them:
  /// where speed counts, set this to false and call sync_buffers() before evaluation and checkpoints.
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
  /// When the first rank has run out of data, the next begin_step of the others and that rank's finish throw
  /// FailedPrecondition, which names it.
  bool throw_when_one_is_out = false;
};

/// Averages gradients over all ranks while backward still runs.
///
///   DistributedDataParallel parallel(*model, world);
///   auto step = parallel.begin_step();
///   step.backward(loss_of(model->forward(x), y));  // gradients are now the mean over ranks
///
/// Accumulation  call loss.backward() for all micro-batches but the last, and begin_step / step.backward for the last:
///               the sum is averaged once. It is what Python's no_sync() does.
/// Shapes        every gradient keeps its parameter's shape and dtype; its value becomes the mean over ranks. The
///               weight of an Embedding or EmbeddingBag with sparse(true) has sparse gradients.
/// Ranks         collective: all ranks construct it and take the same number of steps, or the others wait; see join().
/// Errors        InvalidArgument if parameters or buffers differ between ranks (names the first). FailedPrecondition if
///               a loss does not depend on a parameter (names it) and no option allows that, or a parameter requires a
///               gradient that did not when this was made (names it); the other ranks are told.
///               Timeout if a rank does not come to a step (names it). After an error in a step the object can only be
///               destroyed.
/// Lifetime      `model` and `world` outlive it; parameters are neither added nor replaced while it lives.
/// Source        Li et al., "PyTorch Distributed", VLDB 2020, sec. 3.2; the work is done by libtorch's c10d::Reducer.
class DistributedDataParallel {
 public:
  /// Collective. Checks that all ranks have the same parameters and buffers, then copies rank 0's values to all.
  DistributedDataParallel(torch::nn::Module& model, dist::World& world,
                          const DistributedDataParallelOptions& options = {});
  ~DistributedDataParallel();

  /// One optimisation step of one rank. Move-only.
  class Step {
   public:
    Step(Step&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    /// Collective. `loss` is a scalar. Once per step.
    void backward(const at::Tensor& loss);

   private:
    friend class DistributedDataParallel;
    explicit Step(DistributedDataParallel& owner) : owner_(&owner) {}
    DistributedDataParallel* owner_;
  };

  /// Collective when broadcast_buffers is set, and in a join. Before forward: buffers in step, buckets ready.
  Step begin_step();

  /// Collective. Copies rank 0's buffers to all ranks.
  void sync_buffers();

  /// The part of a training in which ranks may take different numbers of steps. Move-only.
  class Join {
   public:
    Join(Join&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    ~Join();  ///< Without finish(), as when an exception passes: no communication; the others find this rank missing.
    /// Collective. Out of data: takes part in the others' steps with zero gradients until they are out too. Then all
    /// ranks have the parameters and buffers of the last to come here (of several the one with the highest rank).
    void finish();

   private:
    friend class DistributedDataParallel;
    explicit Join(DistributedDataParallel& owner) : owner_(&owner) {}
    DistributedDataParallel* owner_;
  };

  /// All ranks call it before their first step and finish() after their last. In between they communicate by begin_step
  /// and backward alone; each begin_step is followed by its backward. Costs a small all-reduce a step.
  /// Errors  InvalidArgument: the model has a SyncBatchNorm, whose communication nobody could take part in; or
  ///         divide_by_all_ranks is false and a communication hook does the division.
  Join join(const JoinOptions& options = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::train
