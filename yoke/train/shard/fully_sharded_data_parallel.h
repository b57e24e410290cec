// yoke/train/shard/fully_sharded_data_parallel.h -- divides parameters, gradients and optimizer state between ranks.
//
//     FullyShardedDataParallel net(model, world, {.units = {"blocks.0", "blocks.1"}});
//     AdamW optimizer(net);                     // over this rank's parts, not the model
//     const auto loss = loss_of(net(x), y);     // not model->forward(x)
//     loss.backward();                          // the parts' gradients are now the mean over ranks
//     optimizer.step(lr); optimizer.zero_grad();
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "yoke/train/parallel/parallel_module.h"

namespace yoke::train {

struct FullyShardedOptions {
  /// Dotted names ("blocks.0") of submodules that are gathered and freed as units. Choose the blocks of a network. Any
  /// two units should be a small part of the network. Modules outside of these units belong to the model itself, which
  /// is the outermost unit.
  std::vector<std::string> units;
  /// If true, frees a unit after its forward and gathers it again for its backward. If false, the unit stays gathered
  /// until its backward: this saves a third of the communication, but needs memory for all parameters (ZeRO-2). The
  /// outermost unit always stays gathered.
  bool reshard_after_forward = true;
  /// The dtype in which parameters are gathered and the model computes (at::kBFloat16). Shards, their gradients and the
  /// sums over ranks keep the parameters' dtype. Integer parameters are not converted. The caller converts inputs.
  std::optional<at::ScalarType> compute_dtype;
  /// If true, after each backward the first rank's buffers (batch norm's running statistics) are copied to all ranks,
  /// as DistributedDataParallel does, so that evaluations and checkpoints are the same on all ranks. Training does not
  /// read these buffers. For speed, set this to false and call sync_buffers() before evaluations and checkpoints.
  bool broadcast_buffers = true;
  /// For hybrid sharding. The model is divided between the ranks of `group`. `replicas` contains this rank and the
  /// ranks of other replicas that hold the same part. Gradients are reduced within a replica; then each rank's part of
  /// them is averaged over `replicas`. Parameters are gathered only within a replica, such as a node:
  ///   dist::Mesh mesh(world, {{"replicate", 2}, {"shard", 8}});
  ///   FullyShardedDataParallel net(model, mesh["shard"], {.units = ..., .replicas = &mesh["replicate"]});
  dist::Group* replicas = nullptr;
};

/// The part of FullyShardedDataParallel that does not depend on the type of the model.
///
/// Units         C++ modules have no hooks, so a model holds its blocks as Unit (unit.h). A unit's parameters have
///               elements only inside its forward and backward.
/// Step          forward gathers each unit while the previous one computes. Backward gathers the unit again, averages
///               its gradients when they are complete, and then frees the unit. So a rank holds its shards and about
///               two units.
/// Accumulation  more forward and backward passes add to the shards' gradients until zero_grad.
/// Graph         tensors that need a gradient may enter a unit only through its arguments, and leave it only through
///               the result of forward. A tensor that is kept in a member would refer to weights that were freed.
///               Sharded units do not support a second backward through one graph.
/// Unused        within one call of the model, ranks may use different parameters (stochastic depth, experts), or leave
///               a unit's output out of the loss. A rank contributes zero to gradients of parameters that it did not
///               use. If no rank used a parameter, its gradient is zero.
/// Buffers       are whole on each rank; at the end of each backward all ranks have those of the first rank.
/// Ranks         construction, forward and backward are collective. All ranks call the same units in the same order,
///               and the loss of each rank depends on the result of the model.
/// Errors        kInvalidArgument: models or options differ between ranks (names the first difference), units share a
///               parameter, or a gradient is sparse. kFailedPrecondition: a gradient did not come through a unit's
///               output, or the program has changed requires_grad or the memory of a parameter, as torch::load does.
///               The message names the parameter and is reported to the other ranks. kTimeout: a rank does not arrive
///               (names it). After an error in forward or backward the object can only be destroyed.
/// libtorch      torch::optim's optimizers, clip_grad_norm_, torch::save and torch::load do not know parts. Used
///               with the model, they throw kFailedPrecondition, which says what to call instead.
/// Lifetime      `model`, `group` and `replicas` outlive it. After its destruction the model's parameters have no
///               elements.
/// Source        Rajbhandari et al., "ZeRO", SC 2020; Zhao et al., "PyTorch FSDP", VLDB 2023.
class FullyShardedDataParallelBase : public ParallelModule {
 public:
  ~FullyShardedDataParallelBase() override;

  /// Collective. Calls `module.forward(inputs...)`; `module` is the model or one of its units. `net(x)` and Unit call
  /// this function. Call other modules directly, within a unit. Tensors and vectors of tensors among the inputs may
  /// need gradients; see each_tensor for the output.
  ///
  /// Errors kInvalidArgument: `module` is not a unit, and the call is outside of all units.
  template <class Module, class... Inputs>
  auto forward(Module& module, Inputs&&... inputs) {
    Call call(*this, module);
    auto output = module.forward(call.input(std::forward<Inputs>(inputs))...);
    each_tensor(output, [&call](const at::Tensor& tensor) { call.output(tensor); });
    return output;
  }

  /// This rank's part of each trained parameter under the parameter's name, for an optimizer. Backward sets the
  /// gradients of these parts. A part has as many dimensions as its parameter, all of size 1 except the last
  /// (whole_shape in sharding.h returns the parameter's shape). The names are the same on all ranks: if other ranks
  /// have all elements of a parameter, this rank's part is empty. So functions that are collective over parts, such as
  /// norms(), are called by all ranks, also with some of the parts.
  NamedTensors parameters() const override;
  NamedTensors buffers() const override;

  /// Collective over the group. Clips by the norm of the whole gradient, over all ranks' parts.
  at::Tensor clip_grad_norm(double max_norm) override;
  void sync_buffers() override;
  dist::Group& group() const override;

 protected:
  /// Collective. Checks that all ranks have the same model. Takes the first rank's values, and keeps this rank's part
  /// of them on the group's device. The model may be on the CPU; one parameter at a time is moved.
  FullyShardedDataParallelBase(torch::nn::Module& model, dist::Group& group, const FullyShardedOptions& options);

 private:
  struct Impl;
  struct Activity;

  /// One call of a unit's forward. The unit is gathered before the call and freed after it. Hooks gather and free the
  /// unit in backward too.
  class Call {
   public:
    Call(FullyShardedDataParallelBase& owner, const torch::nn::Module& module);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    at::Tensor input(const at::Tensor& tensor);
    std::vector<at::Tensor> input(const std::vector<at::Tensor>& tensors);
    template <class Other>
    requires(!std::is_convertible_v<Other&&, const at::Tensor&> &&
             !std::is_convertible_v<Other&&, const std::vector<at::Tensor>&>) Other && input(Other&& other) {
      return std::forward<Other>(other);
    }

    void output(const at::Tensor& tensor);

   private:
    FullyShardedDataParallelBase& owner_;
    std::shared_ptr<Activity> activity_;  ///< Null if the module is not a unit.
  };

  std::shared_ptr<Impl> impl_;
};

/// Returns the object that shards `module` or a module that contains it; null if `module` is not sharded.
FullyShardedDataParallelBase* sharded_by(const torch::nn::Module& module);

/// Keeps only this rank's part of every parameter. The whole parameter exists while its unit computes. See
/// FullyShardedDataParallelBase.
template <class M>
class FullyShardedDataParallel : public FullyShardedDataParallelBase {
 public:
  /// Collective. `model` is a module or the holder of one.
  FullyShardedDataParallel(M& model, dist::Group& group, const FullyShardedOptions& options = {})
      : FullyShardedDataParallelBase(module_of(model), group, options), model_(model) {}

  /// Collective. Calls the model's `forward` and returns its result: a tensor, or a type described at each_tensor.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return told_to_all([&] { return forward(implementation_of(model_), std::forward<Inputs>(inputs)...); });
  }

  M& model() const { return model_; }

 private:
  M& model_;
};

}  // namespace yoke::train
