// yoke/train/parallel/distributed_data_parallel.h -- keeps one model replica per rank in step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

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
};

/// Averages gradients over all ranks while backward still runs.
///
///   DistributedDataParallel parallel(*model, world);
///   auto step = parallel.begin_step();
///   step.backward(loss_of(model->forward(x), y));  // gradients are now the mean over ranks
///
/// Accumulation  call loss.backward() for all micro-batches but the last, and begin_step / step.backward for the last:
///               the sum is averaged once.
/// Shapes        every gradient keeps its parameter's shape and dtype; its value becomes the mean over ranks.
/// Ranks         collective: all ranks construct it and take the same number of steps, or the others wait.
/// Errors        InvalidArgument if parameters or buffers differ between ranks (names the first); Timeout if a rank
/// does
///               not come to a step (names it). After an error in backward the object can only be destroyed.
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

  /// Collective when broadcast_buffers is set. Before forward: buffers in step, buckets ready.
  Step begin_step();

  /// Collective. Copies rank 0's buffers to all ranks.
  void sync_buffers();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::train
