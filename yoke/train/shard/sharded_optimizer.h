// yoke/train/shard/sharded_optimizer.h -- an optimizer whose state is divided between ranks (ZeRO-1).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/train/named_tensors.h"
#include "yoke/train/optim/optimizer.h"
#include "yoke/train/shard/flat_layout.h"

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// Makes an elementwise optimizer (Sgd, Adam, AdamW, Adagrad, NAdam, RMSprop) over what it is given: slices under their
/// parameters' names, with as many dimensions as these, to be put into groups by name or number of dimensions.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(NamedTensors slices)>;

/// Whose work it is that gradients are the mean over ranks.
enum class GradientMean {
  kDone,  ///< They are when step() is called: DistributedDataParallel averaged them.
  /// step() averages them, and gives each rank its slices only: half of what DistributedDataParallel sends, but after
  /// backward instead of during it.
  kInStep,
};

struct ShardedOptimizerOptions {
  GradientMean gradients = GradientMean::kDone;
  /// Parameters go together into buffers of this size, each divided between all ranks and sent as one.
  int64_t bucket_bytes = 25 << 20;
};

/// Each rank steps its part of every parameter and sends the result to all. A rank keeps all parameters and gradients,
/// but of the optimizer's state its part alone: for AdamW 8 bytes a parameter become 8 / ranks.
///
///   ShardedOptimizer optimizer(model, world, [](NamedTensors slices) {
///     return std::make_unique<AdamW>(std::move(slices), AdamWOptions{.weight_decay = 0.1});
///   });
///   DistributedDataParallel net(model, world);   // or GradientMean::kInStep without it
///   loss_of(net(x), y).backward(); optimizer.step(lr); optimizer.zero_grad();
///
/// Parameters  become views of flat buffers, contiguous (channels_last weights too), in place: modules keep theirs.
///             Construct it before DistributedDataParallel, which remembers strides, and after what gives them other
///             memory (torch::load, to). A tied one counts once, under its first name (see distinct).
/// Gradients   dense. With kInStep a parameter without one counts as zero if another rank has one, and is left as it is
///             if none has.
/// Ranks       construction and step are collective.
/// Errors      kInvalidArgument when ranks differ in names, shapes or options (names the first), a name comes twice, or
///             a gradient is sparse; kFailedPrecondition when a parameter is no view any more (the other ranks are told
///             of both).
/// Lifetime    `world` outlives it.
/// Source      Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020.
class ShardedOptimizer : public ScalableOptimizer {
 public:
  /// Collective. Takes parameters that need gradients, and rank 0's values of them.
  template <HasParameters M>
  ShardedOptimizer(const M& model, dist::Group& world, const MakeOptimizer& make_optimizer,
                   const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(parameters_of(model), world, make_optimizer, options) {}
  ShardedOptimizer(const NamedTensors& parameters, dist::Group& world, const MakeOptimizer& make_optimizer,
                   const ShardedOptimizerOptions& options = {});

  void step() override;                        ///< Collective. With each group's own learning rate.
  void step(double lr);                        ///< Collective.
  void step(const GradScale& scale) override;  ///< Collective. A found_inf of one rank is one of all.
  void zero_grad();                            ///< Makes gradients undefined, the slices' too.

  /// Collective with kInStep, which averages gradients now; a GradScaler's unscale and step ask for them. With kDone
  /// the parameters' own: clip them after unscale as without this optimizer.
  StepGradients step_gradients() override;

  /// Collective. Only with kInStep, before step: averages gradients now, then scales them so that the norm of the whole
  /// is at most `max_norm`; gives what it was, a float scalar on the device. (With kDone clip the parameters' own.)
  /// Parameters keep their gradients as they were: when these change before step, it averages anew, unclipped.
  at::Tensor clip_grad_norm(double max_norm);

  /// The one that steps this rank's slices. Null on a rank without any.
  Optimizer* local() const { return local_.get(); }

  /// The local optimizer's: of this rank's slices, and empty on a rank without any. A TrainState saves it whole, from
  /// all ranks, and loads it on any number of them, into an optimizer that is not sharded too.
  NamedTensors state_layout() const;
  TensorMap state_dict() const;
  /// Errors  see Optimizer::load_state_dict.
  void load_state_dict(const TensorMap& state);

 private:
  struct Bucket {
    NamedTensors parameters;
    FlatLayout layout;
    at::Tensor flat;                 ///< [ranks * n]; parameters are views of it.
    std::vector<at::Tensor> slices;  ///< Of this rank's range, beside parameters.
  };

  void prepare();
  void finish();
  void gather();
  void slice_gradients();
  void reduce_gradients(const at::Tensor& has_gradient);
  void step_local(const std::function<void(Optimizer&)>& step);
  void check_views() const;
  [[noreturn]] void refuse_sparse(const std::string& name) const;

  /// A parameter's gradient as it was when it was averaged.
  struct Reduced {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> gradient;
    uint32_t version;
  };
  bool is_as_reduced() const;

  dist::Group& world_;
  GradientMean gradients_;
  std::vector<Reduced> reduced_;  ///< Of all parameters, in the order of buckets; empty: not since the last step.
  NamedTensors parameters_;
  std::vector<Bucket> buckets_;
  std::unique_ptr<Optimizer> local_;
};

}  // namespace yoke::train
