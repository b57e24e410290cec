// yoke/train/optim/ema.h -- a running average of a model's parameters, for evaluation and for saving.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace yoke::train {

struct EmaOptions {
  double decay = 0.999;          ///< average = decay * average + (1 - decay) * parameter.
  bool warm_up = false;          ///< The decay of update n is at most (1 + n) / (10 + n): early updates count more.
  bool average_buffers = false;  ///< If false, buffers are copied. Integer buffers are always copied.
};

/// Like torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn, but without a second module.
///
///     ExponentialMovingAverage ema(model, {.decay = 0.99});
///     optimizer.step(lr); ema.update();
///     { const auto averaged = ema.swap_in(); evaluate(*model); }   // the training's values are restored here
///
/// Shapes   an average has the shape, dtype and device of its tensor. A tied tensor has one average, under its first
///          name (see distinct).
/// Tensors  the object refers to the model's tensors. Their memory may be replaced by memory of the same shape, dtype
///          and device (as a ShardedOptimizer does).
/// Devices  one foreach operation for each (device, dtype), without waiting for a device.
/// Ranks    not collective: equal replicas have equal averages. For sharded parameters
///          (FullyShardedDataParallel::parameters()), each rank averages its parts.
/// Errors   kInvalidArgument: decay is outside [0, 1], a name appears twice, a tensor is undefined, or a parameter has
///          no elements.
/// Source   torch/optim/swa_utils.py. As in AveragedModel, the first update copies the parameters, so averages begin
///          after the first step.
class ExponentialMovingAverage {
 public:
  template <HasParameters M>
  explicit ExponentialMovingAverage(const M& model, const EmaOptions& options = {})
      : ExponentialMovingAverage(parameters_of(model), buffers_of(model), options) {}
  ExponentialMovingAverage(const NamedTensors& parameters, const NamedTensors& buffers, const EmaOptions& options = {});

  /// Call it after each optimizer step.
  /// Errors  kFailedPrecondition: averages are swapped in, or the shape, dtype or device of a tensor (named) differs
  ///         from its average because the model was moved or sharded. Then nothing has changed.
  void update();

  /// Exchanges the values of model and averages during the lifetime of the result. The tensors keep their memory.
  /// Errors  see update().
  class SwappedIn;
  [[nodiscard]] SwappedIn swap_in();

  int64_t num_updates() const { return num_updates_; }

  /// The averages of parameters, then of buffers, under their names. While swapped in, they hold the training's values.
  NamedTensors averages() const;

  /// The model's tensors that have averages: parameters (or this rank's parts of them) and buffers. A TrainState uses
  /// the layout of these tensors for each "average.NAME".
  NamedTensors state_layout() const { return values_; }

  /// "average.NAME" for all tensors, and "num_updates". The tensors are not copies: save them before the next update.
  /// Errors  kFailedPrecondition while averages are swapped in.
  TensorMap state_dict() const;

  /// On an error nothing changes. A frozen parameter that the state lacks has its present value as its average.
  /// Errors: kInvalidArgument naming a tensor that is missing, unknown, or of a different shape or dtype.
  void load_state_dict(const TensorMap& state);

 private:
  /// The tensors of one foreach operation.
  struct Batch {
    bool is_averaged = true;  ///< If false, values are copied.
    std::vector<at::Tensor> averages, values;
  };

  void add(const NamedTensors& tensors, bool is_averaged);
  void swap();
  void take_missing() const;
  void check_not_swapped() const;
  void check_unchanged() const;

  EmaOptions options_;
  NamedTensors values_, averages_;  ///< The model's tensors and their averages, in the same order.
  size_t num_parameters_ = 0;       ///< The first ones; the others are buffers.
  std::vector<Batch> batches_;
  mutable std::vector<size_t> missing_;  ///< Averages that a loaded state lacked, until its parameters are loaded, too.
  int64_t num_updates_ = 0;
  bool is_swapped_ = false;
};

/// Move-only. The ExponentialMovingAverage must outlive it.
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
