// yoke/train/optim/ema.h -- a running average of a model's parameters, to evaluate and to keep.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace yoke::train {

struct EmaOptions {
  double decay = 0.999;          ///< average = decay * average + (1 - decay) * parameter.
  bool warm_up = false;          ///< The decay of update n is at most (1 + n) / (10 + n): early updates count more.
  bool average_buffers = false;  ///< Otherwise they are copied. Integers (num_batches_tracked) always are.
};

/// torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn, on the model's own tensors: no second module.
///
///     ExponentialMovingAverage ema(model, {.decay = 0.99});
///     optimizer.step(lr); ema.update();
///     { const auto averaged = ema.swap_in(); evaluate(*model); }   // and the training's own values are back
///
/// Shapes   an average has its tensor's shape, dtype and device. A tied tensor has one, under its first name (see
///          distinct).
/// Tensors  of the model are kept themselves: where their memory moves, with the same shape, dtype and device (as a
///          ShardedOptimizer does), averages follow.
/// Devices  one foreach operation for each (device, dtype); nothing waits for a device.
/// Ranks    not collective: replicas in step have averages in step. Sharded parameters are averaged as slices, say
///          FullyShardedDataParallel's parameters().
/// Errors   kInvalidArgument: decay out of [0, 1], a name twice, an undefined tensor, a parameter without elements.
/// Source   torch/optim/swa_utils.py. The first update copies, as there: averages begin after the first step.
class ExponentialMovingAverage {
 public:
  template <HasParameters M>
  explicit ExponentialMovingAverage(const M& model, const EmaOptions& options = {})
      : ExponentialMovingAverage(parameters_of(model), buffers_of(model), options) {}
  ExponentialMovingAverage(const NamedTensors& parameters, const NamedTensors& buffers, const EmaOptions& options = {});

  /// After each optimizer step.
  /// Errors  kFailedPrecondition while averages are swapped in, or naming a tensor that has another shape, dtype or
  ///         device than its average by now: the model has been moved or sharded since. Nothing has changed then.
  void update();

  /// Exchanges values for as long as the result lives; the tensors stay where they are.
  /// Errors  see update().
  class SwappedIn;
  [[nodiscard]] SwappedIn swap_in();

  int64_t num_updates() const { return num_updates_; }

  /// Parameters, then buffers, under their names: the training's own values while averages are swapped in.
  NamedTensors averages() const;

  /// What "average.NAME" is of, for a TrainState: parameters, or parts of them, and buffers.
  NamedTensors state_layout() const { return values_; }

  /// "average.NAME" for all, and "num_updates". Not copies: write them out before the next update.
  /// Errors  kFailedPrecondition while averages are swapped in.
  TensorMap state_dict() const;

  /// All or nothing. Errors: kInvalidArgument naming the tensor: missing, unknown, another shape or dtype.
  void load_state_dict(const TensorMap& state);

 private:
  /// Tensors that one foreach operation takes.
  struct Batch {
    bool is_averaged = true;  ///< Or copied.
    std::vector<at::Tensor> averages, values;
  };

  void add(const NamedTensors& tensors, bool is_averaged);
  void swap();
  void check_not_swapped() const;
  void check_unchanged() const;

  EmaOptions options_;
  NamedTensors values_, averages_;  ///< Beside each other; the model's and ours.
  std::vector<Batch> batches_;
  int64_t num_updates_ = 0;
  bool is_swapped_ = false;
};

/// Move-only; the average has to outlive it.
class ExponentialMovingAverage::SwappedIn {
 public:
  explicit SwappedIn(ExponentialMovingAverage& ema);
  ~SwappedIn();
  SwappedIn(SwappedIn&& other) noexcept;
  SwappedIn& operator=(SwappedIn&&) = delete;

 private:
  ExponentialMovingAverage* ema_;
};

}  // namespace yoke::train
