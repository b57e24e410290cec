// yoke/train/shard/sharded_optimizer.h -- an optimizer whose state is divided between ranks (ZeRO-1).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/train/named_tensors.h"
#include "yoke/train/optim/optimizer.h"
#include "yoke/train/shard/flat_layout.h"

namespace yoke::train {

namespace detail {
class AveragedInStep;
class Replicated;
}  // namespace detail

/// A function that makes an elementwise optimizer (Sgd, Adam, AdamW, Adagrad, NAdam, RMSprop) over the given slices,
/// and returns the optimizer or a unique_ptr to one. A slice has its parameter's name and number of dimensions. The
/// function may use both to divide the slices into groups. All ranks get the same names; a slice may be empty.
class MakeOptimizer {
 public:
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, MakeOptimizer>) MakeOptimizer(Function make)
      : make_([make = std::move(make)](NamedTensors slices) -> std::unique_ptr<Optimizer> {
          using Made = decltype(make(std::move(slices)));
          if constexpr (std::is_base_of_v<Optimizer, Made>) {
            return std::unique_ptr<Optimizer>(new Made(make(std::move(slices))));  // made in place, not copied
          } else {
            return make(std::move(slices));
          }
        }) {}
  std::unique_ptr<Optimizer> operator()(NamedTensors slices) const { return make_(std::move(slices)); }

 private:
  std::function<std::unique_ptr<Optimizer>(NamedTensors slices)> make_;
};

/// Who averages the gradients over ranks.
enum class GradientMean {
  kDone,  ///< The caller averages them before step(), as DistributedDataParallel does.
  /// step() averages them, and each rank receives only its slices. Ranks send half as much as with
  /// DistributedDataParallel, but after backward instead of during it. If all ranks share memory, parameters and
  /// gradients lie in it: each rank averages its part of the gradients of all ranks, updates it, and writes it into the
  /// parameters of all ranks, in one pass.
  kInStep,
};

struct ShardedOptimizerOptions {
  GradientMean gradients = GradientMean::kDone;
  /// Parameters are combined into buffers of this size. Each buffer is divided between all ranks and sent as one
  /// message.
  int64_t bucket_bytes = 25 << 20;
};

/// Each rank updates its part of the parameters and sends the result to all ranks. A rank keeps all parameters and
/// gradients, but only its part of the optimizer's state: AdamW needs 8 / ranks bytes per parameter instead of 8.
///
///   ShardedOptimizer optimizer(model, world, [](NamedTensors slices) {
///     return AdamW(std::move(slices), {.weight_decay = 0.1});   // or with groups: AdamW({{a, {...}}, {b, {...}}})
///   });
///   DistributedDataParallel net(model, world);   // or GradientMean::kInStep without it
///   loss_of(net(x), y).backward(); optimizer.step(lr); optimizer.zero_grad();
///
/// Sharded<AdamW> (below) is shorter. The function is for optimizers that are made in another way.
///
/// Parameters  become contiguous views of flat buffers (channels_last weights too). The tensor objects stay the same,
///             so modules keep them. First call functions that change memory of parameters (torch::load, to). Then
///             construct the optimizer, and then DistributedDataParallel, which relies on the strides. A tied parameter
///             counts once, under its first name (see distinct).
/// Frozen      parameters have slices too, as PyTorch's optimizers have all parameters. Such a parameter has no state
///             and no place in the buffers, and is not sent, until it gets a gradient. From that step on it is trained
///             like the others. With kDone, it gets its first gradient in the same step on all ranks.
/// Gradients   must be dense. With kInStep, a gradient that is missing on this rank counts as zero if another rank has
///             one; if no rank has one, the parameter is not changed. In shared memory, a gradient is a tensor there,
///             which the next one of the parameter overwrites.
/// Ranks       construction and step are collective.
/// Errors      kInvalidArgument: ranks differ in names, shapes or options (names the first difference), a name appears
///             twice, or a gradient is sparse; kFailedPrecondition: a parameter is no longer a view. A sparse gradient
///             and a lost view are reported to the other ranks.
/// Lifetime    `world` outlives it.
/// Source      Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020.
class ShardedOptimizer : public ScalableOptimizer {
 public:
  /// Collective. Parameters that need gradients get rank 0's values.
  template <HasParameters M>
  ShardedOptimizer(const M& model, dist::Group& world, const MakeOptimizer& make_optimizer,
                   const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(parameters_of(model), world, make_optimizer, options) {}
  ShardedOptimizer(const NamedTensors& parameters, dist::Group& world, const MakeOptimizer& make_optimizer,
                   const ShardedOptimizerOptions& options = {});

  void step() override;                        ///< Collective. Uses each group's learning rate.
  void step(double lr);                        ///< Collective. Sets the rate of all groups first.
  void step(const GradScale& scale) override;  ///< Collective. found_inf on one rank counts for all.
  void zero_grad();                            ///< Makes gradients undefined, including those of slices.

  /// The learning rates of the groups that make_optimizer made, as those of an Optimizer. All ranks set the same.
  double lr(size_t group = 0) const { return local_->lr(group); }
  void set_lr(double lr) override { local_->set_lr(lr); }
  void set_lr(size_t group, double lr) { local_->set_lr(group, lr); }

  /// With kInStep, averages gradients now and is collective; a GradScaler's unscale and step call it. With kDone,
  /// returns the parameters' own gradients. As with other optimizers, clip after unscale.
  StepGradients step_gradients() override;

  /// Collective. Only with kInStep, before step: averages gradients now, then scales the averages so that their total
  /// norm is at most `max_norm`. Returns the norm before scaling as a float scalar on the device. (With kDone, clip the
  /// parameters' own gradients.) The parameters' own gradients are unchanged. If they change before step, step averages
  /// them again, without clipping.
  at::Tensor clip_grad_norm(double max_norm);

  /// Like clip_grad_norm, but clamps each element of the averages to [-max_value, max_value].
  void clip_grad_value(double max_value);

  const NamedTensors& parameters() const { return parameters_; }  ///< The whole ones.
  /// The optimizer of this rank's slices.
  Optimizer* local() const { return local_.get(); }

  /// The local optimizer's state, for this rank's slices. A TrainState saves the states of all ranks as one whole
  /// state. A TrainState loads this state on any number of ranks, also into an optimizer that is not sharded.
  NamedTensors state_layout() const;
  TensorMap state_dict() const;
  /// Errors  see Optimizer::load_state_dict.
  void load_state_dict(const TensorMap& state);

 private:
  struct Bucket {
    NamedTensors parameters;
    FlatLayout layout;
    at::Tensor flat;                 ///< [ranks * n]; parameters are views of it.
    std::vector<at::Tensor> slices;  ///< Slices of this rank's range, in the order of parameters.
    /// In shared memory, of each rank: flat, and the gradients of its parameters. Empty without.
    std::vector<at::Tensor> flats, gradients;
    std::vector<at::Tensor> places;  ///< Views of this rank's gradients, in the order of parameters.
    size_t number = 0;               ///< Of the bucket.
    bool was_idle = false;           ///< At construction.
  };

  /// Elements of this rank's range of a bucket that are updated together, and where the mean of their gradients is.
  struct Piece {
    size_t bucket = 0;
    int64_t first = 0, size = 0;
    at::Tensor mean;
  };

  Bucket idle_bucket(const NamedTensors& parameters) const;
  void place(Bucket& bucket);
  void make_idle_again();
  void place_trained(const std::vector<bool>& is_trained);
  void place_trained_here();
  bool place_trained_anywhere(const uint8_t* has_gradient);
  void follow_group();
  void prepare();
  /// With kInStep. Returns for each parameter whether any rank has a gradient; nothing if the gradients have been
  /// averaged since they changed.
  std::optional<at::Tensor> exchange_flags();
  void finish();
  void finish_slices();
  void gather();
  void slice_gradients();
  void reduce_gradients(const at::Tensor& has_gradient);
  // In shared memory, see sharded_in_memory.cpp.
  void share_memory();
  void fill_places();
  void reduce_in_memory(const at::Tensor& has_gradient);
  void step_in_memory(const at::Tensor& has_gradient);
  void divide_into_pieces();
  StepPiece step_piece(const Piece& piece, const std::unordered_map<const c10::TensorImpl*, size_t>& indices) const;
  void for_each_piece(const std::function<void(const Piece& piece)>& use);
  void publish(const Piece& piece) const;
  void step_local(const std::function<void(Optimizer&)>& step);
  void check_views() const;
  [[noreturn]] void refuse_sparse(const std::string& name) const;

  /// Identifies a parameter's gradient at the time when it was averaged.
  struct Reduced {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> gradient;
    uint32_t version;
  };
  bool is_as_reduced() const;

  dist::Group& world_;
  int64_t generation_;
  GradientMean gradients_;
  std::vector<Reduced> reduced_;  ///< In the order of buckets; empty if nothing was averaged since the last step.
  NamedTensors parameters_;
  std::vector<Bucket> buckets_;
  std::vector<Bucket> idle_;  ///< Of frozen parameters, which have had no gradient: names, layouts and slices alone.
  bool shares_memory_ = false;
  std::vector<std::shared_ptr<detail::AveragedInStep>> marks_, idle_marks_;
  std::vector<std::vector<Piece>> pieces_;  ///< By lane; this rank's ranges of all buckets.
  StepInPieces in_pieces_;                  ///< The same pieces.
  std::unique_ptr<Optimizer> local_;
  std::shared_ptr<detail::Replicated> replicated_;  ///< The whole parameters of `buckets_`.
};

/// A ShardedOptimizer that is made like the optimizer itself, with a group of ranks:
///
///   Sharded<AdamW> optimizer(model, world, {.weight_decay = 0.1});
///   Sharded<AdamW> optimizer({{decayed, {.weight_decay = 0.1}}, {rest, {.weight_decay = 0}}}, world);
///
/// `Made` is one of Sgd, Adam, AdamW, Adagrad, NAdam and RMSprop. The groups have whole parameters, as `split(
/// parameters_of(model), ...)` gives them, with the frozen ones.
template <class Made>
class Sharded : public ShardedOptimizer {
 public:
  using Options = decltype(std::declval<const Made&>().options());
  using Groups = std::vector<ParameterGroup<Options>>;

  /// Collective.
  template <HasParameters M>
  Sharded(const M& model, dist::Group& group, const Options& options = {}, const ShardedOptimizerOptions& sharding = {})
      : Sharded(Groups{{parameters_of(model), options}}, group, sharding) {}
  /// Collective. Errors  kInvalidArgument: a parameter is in two groups.
  Sharded(const Groups& groups, dist::Group& group, const ShardedOptimizerOptions& sharding = {})
      : ShardedOptimizer(
            joined(groups), group,
            [&groups](NamedTensors slices) -> std::unique_ptr<Optimizer> {
              Groups of_slices;
              for (const auto& [parameters, options] : groups) {
                auto& of_group = of_slices.emplace_back(ParameterGroup<Options>{{}, options}).parameters;
                for (const auto& parameter : parameters) {
                  for (const auto& slice : slices) {
                    if (slice.first == parameter.first) of_group.push_back(slice);
                  }
                }
              }
              return std::make_unique<Made>(of_slices);
            },
            sharding) {}

 private:
  static NamedTensors joined(const Groups& groups) {
    NamedTensors all;
    for (const auto& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
    return all;
  }
};

}  // namespace yoke::train
