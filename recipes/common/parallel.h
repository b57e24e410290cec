// recipes/common/parallel.h -- one flag for three ways to train a network on all ranks: --parallel ddp, zero1 or fsdp.
//
//     recipes::Parallel net(model, world, {.how = options.parallel, .units = model->fsdp_units()}, [](auto parameters)
//     {
//       return std::make_unique<train::AdamW>(std::move(parameters));
//     });
//     net.add_to(run.state());
//     ... loss_of(net(x), y).backward(); net.clip_grad_norm(1.0); net.step(lr); net.zero_grad();
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/train_state.h"
#include "yoke/train/optim/optimizer.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"
#include "yoke/train/shard/sharded_optimizer.h"

namespace recipes {

struct ParallelOptions {
  std::string how = "ddp";         ///< "ddp"; "zero1": the optimizer's state is divided; "fsdp": the parameters, too.
  std::vector<std::string> units;  ///< For fsdp: FullyShardedOptions::units.
};

/// Makes the optimizer of the parameters, or of this rank's part of them: names and dimensions are those of the whole
/// parameters, and train::split knows their shapes.
using OptimizerOf = std::function<std::unique_ptr<yoke::train::Optimizer>(yoke::train::NamedTensors parameters)>;

/// A network and its optimizer. All ways give the same training, within rounding, and the checkpoint of one can be
/// resumed by another on any number of ranks.
///
/// Ranks     construction, calls with gradients, backward and step are collective; with fsdp every call and
///           clip_grad_norm are, too.
/// Buffers   are copied to all ranks by sync_buffers() alone: call it before evaluations and before a checkpoint.
/// Lifetime  `model` and `world` outlive it. The model is on its device, and has its initial values, before it is made.
/// Errors    kInvalidArgument: an unknown way.
template <class M>
class Parallel {
 public:
  Parallel(M& model, yoke::dist::World& world, const ParallelOptions& options, const OptimizerOf& make_optimizer)
      : model_(model) {
    using namespace yoke;
    if (options.how == "fsdp") {
      sharded_ = std::make_unique<train::FullyShardedDataParallel<M>>(
          model, world, train::FullyShardedOptions{.units = options.units});
      optimizer_ = make_optimizer(sharded_->parameters());
      return;
    }
    if (options.how == "zero1") {  // before DistributedDataParallel, because it changes the strides of parameters
      divided_ = std::make_unique<train::ShardedOptimizer>(model, world, make_optimizer);
    } else if (options.how != "ddp") {
      throw Error(ErrorCode::kInvalidArgument, "there is no way to train called {}; use ddp, zero1 or fsdp",
                  options.how);
    }
    replicated_ = std::make_unique<train::DistributedDataParallel<M>>(
        model, world,
        train::DistributedDataParallelOptions{.broadcast_buffers = false, .gradient_as_bucket_view = true});
    if (!divided_) optimizer_ = make_optimizer(replicated_->parameters());
  }

  /// Calls the model's `forward` on all ranks.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return sharded_ ? (*sharded_)(std::forward<Inputs>(inputs)...) : (*replicated_)(std::forward<Inputs>(inputs)...);
  }

  /// Scales gradients so that their norm over all ranks is at most `max_norm`. Returns the norm before.
  at::Tensor clip_grad_norm(double max_norm) { return parallel().clip_grad_norm(max_norm); }

  void step(double lr) { divided_ ? divided_->step(lr) : optimizer_->step(lr); }
  void zero_grad() { divided_ ? divided_->zero_grad() : optimizer_->zero_grad(); }
  void sync_buffers() { parallel().sync_buffers(); }

  /// Adds "model" and "optimizer".
  void add_to(yoke::train::TrainState& state) {
    state.add("model", model_);
    divided_ ? state.add("optimizer", *divided_) : state.add("optimizer", *optimizer_);
  }

 private:
  yoke::train::ParallelModule& parallel() {
    if (sharded_) return *sharded_;
    return *replicated_;
  }

  M& model_;
  std::unique_ptr<yoke::train::FullyShardedDataParallel<M>> sharded_;  // one of these two
  std::unique_ptr<yoke::train::DistributedDataParallel<M>> replicated_;
  std::unique_ptr<yoke::train::ShardedOptimizer> divided_;  // one of these two
  std::unique_ptr<yoke::train::Optimizer> optimizer_;
};

}  // namespace recipes
