// yoke/train/shard/fully_sharded_data_parallel.h -- parameters, gradients and optimizer state divided between ranks.
//
//     FullyShardedDataParallel net(model, world, {.units = {"blocks.0", "blocks.1"}});
//     AdamW optimizer(net);                     // over this rank's parts, not the model
//     const auto loss = loss_of(net(x), y);     // not model->forward(x)
//     loss.backward();                          // the parts' gradients are now the mean over ranks
//     optimizer.step(lr); optimizer.zero_grad();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "yoke/train/parallel/parallel_module.h"

namespace yoke::train {

struct FullyShardedOptions {
  /// Submodules that are gathered and freed as one, by their dotted names ("blocks.0"): the blocks of a network, so
  /// that two of them are a small part of it. What is below none of them belongs to the model itself, the outermost
  /// unit.
  std::vector<std::string> units;
  /// Frees a unit after its forward and gathers it again for its backward. False keeps it in between: a third less
  /// communication, and the memory of all parameters (ZeRO-2). The outermost unit is always kept.
  bool reshard_after_forward = true;
  /// Gathers and computes in this dtype (at::kBFloat16), while shards, their gradients and the sums over ranks keep the
  /// parameters' own. Parameters of integers stay as they are. Inputs are the caller's to convert.
  std::optional<at::ScalarType> compute_dtype;
  /// Hybrid sharding: the model is divided between the ranks of the group that it is given, and these have what this
  /// rank has, each of another replica. Gradients are reduced within a replica and then averaged between them, a part
  /// of 1 / group.size() alone; parameters are gathered within a replica, as in one node:
  ///   dist::Mesh mesh(world, {{"replicate", 2}, {"shard", 8}});
  ///   FullyShardedDataParallel net(model, mesh["shard"], {.units = ..., .replicas = &mesh["replicate"]});
  dist::Group* replicas = nullptr;
};

/// What FullyShardedDataParallel does, whatever the type of the model.
///
/// Units         C++ modules have no hooks, so a model holds its blocks as Unit (unit.h). A unit's parameters are there
///               inside of its forward and backward only; elsewhere they have no elements.
/// Step          gathers (the next unit's while this one computes), and in backward gathers again, averages each unit's
///               gradients and frees them as soon as they are complete. So a rank holds its shards and about two units.
/// Accumulation  further forward and backward passes add to the shards' gradients until zero_grad.
/// Graph         every tensor that needs a gradient enters a unit through its arguments, and leaves it as what forward
///               returns: what is kept in a member meets weights that are gone. A second backward through one graph is
///               not for sharded units.
/// Unused        within one call of the model each rank may use other parameters (stochastic depth, experts), or leave
///               a unit's output out of its loss: its contribution is zero, and a parameter that no rank reached has a
///               gradient of zero.
/// Ranks         collective: construction, forward and backward; all ranks call the same units in the same order, and
///               each one's loss depends on what the model returned.
/// Errors        kInvalidArgument if models or options differ between ranks (names the first difference), units share a
///               parameter, or a gradient is sparse; kFailedPrecondition for a gradient that no unit's output led to,
///               and where requires_grad or a parameter's memory was changed, by torch::load say (these name the
///               parameter, and the other ranks are told); kTimeout if a rank does not come (names it). After an error
///               in forward or backward the object can only be destroyed.
/// Lifetime      `model`, `group` and `replicas` outlive it. Its destruction leaves the model's parameters without
///               elements.
/// Source        Rajbhandari et al., "ZeRO", SC 2020; Zhao et al., "PyTorch FSDP", VLDB 2023.
class FullyShardedDataParallelBase : public ParallelModule {
 public:
  ~FullyShardedDataParallelBase() override;

  /// Collective. `module.forward(inputs...)` of the model or one of its units, as `net(x)` and Unit call it; within a
  /// unit, any other module is called as it is. Tensors among the inputs, and vectors of them, may need gradients; for
  /// the output see each_tensor.
  ///
  /// Errors  kInvalidArgument for a module that is no unit, called outside of all.
  template <class Module, class... Inputs>
  auto forward(Module& module, Inputs&&... inputs) {
    Call call(*this, module);
    auto output = module.forward(call.input(std::forward<Inputs>(inputs))...);
    each_tensor(output, [&call](const at::Tensor& tensor) { call.output(tensor); });
    return output;
  }

  /// This rank's part of each trained parameter under the parameter's name, for an optimizer; backward sets their
  /// gradients. A part has as many dimensions as its parameter, all of size 1 but the last (whole_shape in sharding.h
  /// gives the parameter's shape). Parameters that are all on other ranks are left out.
  NamedTensors parameters() const override;
  NamedTensors buffers() const override;

  /// Collective, over the group. By the norm of the whole gradient.
  at::Tensor clip_grad_norm(double max_norm) override;
  void sync_buffers() override;
  dist::Group& group() const override;

 protected:
  /// Collective. Checks that all ranks have the same model, takes the first rank's values, and keeps this rank's part
  /// of them on the group's device. The model may be on the CPU: it moves one parameter at a time.
  FullyShardedDataParallelBase(torch::nn::Module& model, dist::Group& group, const FullyShardedOptions& options);

 private:
  struct Impl;
  struct Activity;

  /// One call of a unit's forward: gathered before, freed after, watched in backward.
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
    std::shared_ptr<Activity> activity_;  ///< Null: no unit.
  };

  std::shared_ptr<Impl> impl_;
};

/// What shards the module, or one around it; null when it is whole.
FullyShardedDataParallelBase* sharded_by(const torch::nn::Module& module);

/// Keeps of every parameter only this rank's part; the whole exists while its unit computes. See
/// FullyShardedDataParallelBase.
template <class M>
class FullyShardedDataParallel : public FullyShardedDataParallelBase {
 public:
  /// Collective. `model` is a module or the holder of one.
  FullyShardedDataParallel(M& model, dist::Group& group, const FullyShardedOptions& options = {})
      : FullyShardedDataParallelBase(module_of(model), group, options), model_(model) {}

  /// Collective. `forward` of the model. Returns what that does: a tensor, or see each_tensor.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return told_to_all([&] { return forward(implementation_of(model_), std::forward<Inputs>(inputs)...); });
  }

  M& model() const { return model_; }

 private:
  M& model_;
};

}  // namespace yoke::train
