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

#include "yoke/base/error.h"
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
/// Ranks     construction, calls with gradients, backward, clip_grad_norm and step are collective; with fsdp every call
///           is.
/// Buffers   are copied to all ranks by sync_buffers() alone: call it before evaluations and before a checkpoint.
/// Lifetime  `model` and `world` outlive it. The model is on its device, and has its initial values, before it is made.
/// Errors    kInvalidArgument: an unknown way.
template <class M>
class Parallel {
 public:
  Parallel(M& model, yoke::dist::World& world, const ParallelOptions& options, const OptimizerOf& make_optimizer)
      : model_(model), world_(world) {
    using namespace yoke;
    if (options.how == "fsdp") {
      sharded_ = std::make_unique<train::FullyShardedDataParallel<M>>(
          model, world, train::FullyShardedOptions{.units = options.units});
      optimizer_ = make_optimizer(sharded_->parameters());
      return;
    }
    if (options.how == "zero1") {
      // Without DistributedDataParallel, so that each rank receives only its part of the mean gradient, and gradients
      // may have other strides (channels_last) than parameters, which are views of flat buffers.
      divided_ = std::make_unique<train::ShardedOptimizer>(
          model, world, make_optimizer, train::ShardedOptimizerOptions{.gradients = train::GradientMean::kInStep});
      sync_buffers();
      return;
    }
    if (options.how != "ddp") {
      throw Error(ErrorCode::kInvalidArgument, "there is no way to train called {}; use ddp, zero1 or fsdp",
                  options.how);
    }
    replicated_ = std::make_unique<train::DistributedDataParallel<M>>(
        model, world,
        train::DistributedDataParallelOptions{.broadcast_buffers = false, .gradient_as_bucket_view = true});
    optimizer_ = make_optimizer(replicated_->parameters());
  }

  /// Calls the model's `forward` on all ranks.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    if (sharded_) return (*sharded_)(std::forward<Inputs>(inputs)...);
    if (replicated_) return (*replicated_)(std::forward<Inputs>(inputs)...);
    return yoke::train::implementation_of(model_).forward(std::forward<Inputs>(inputs)...);
  }

  /// Scales gradients so that their norm over all ranks is at most `max_norm`. Returns the norm before.
  at::Tensor clip_grad_norm(double max_norm) {
    if (divided_) return divided_->clip_grad_norm(max_norm);
    return sharded_ ? sharded_->clip_grad_norm(max_norm) : replicated_->clip_grad_norm(max_norm);
  }

  void step(double lr) { divided_ ? divided_->step(lr) : optimizer_->step(lr); }
  void zero_grad() { divided_ ? divided_->zero_grad() : optimizer_->zero_grad(); }
  void sync_buffers() {
    if (sharded_) return sharded_->sync_buffers();
    if (replicated_) return replicated_->sync_buffers();
    for (auto& [name, buffer] : yoke::train::buffers_of(model_)) world_.broadcast(buffer);
  }

  /// Adds "model" and "optimizer".
  void add_to(yoke::train::TrainState& state) {
    state.add("model", model_);
    divided_ ? state.add("optimizer", *divided_) : state.add("optimizer", *optimizer_);
  }

 private:
  M& model_;
  yoke::dist::World& world_;
  std::unique_ptr<yoke::train::FullyShardedDataParallel<M>> sharded_;    // fsdp
  std::unique_ptr<yoke::train::DistributedDataParallel<M>> replicated_;  // ddp
  std::unique_ptr<yoke::train::Optimizer> optimizer_;                    // of both
  std::unique_ptr<yoke::train::ShardedOptimizer> divided_;               // zero1
};

}  // namespace recipes
