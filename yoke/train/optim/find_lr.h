// yoke/train/optim/find_lr.h -- suggests an initial learning rate after a trial over a range of rates.
//
//     const auto curve = find_lr(group, net, optimizer, [&] { return cross_entropy(net(x()), y()); });
//     const double lr = curve.suggestion.value_or(1e-3);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "yoke/train/named_tensors.h"
#include "yoke/train/optim/optimizer.h"

namespace yoke::train {

struct FindLrOptions {
  double min_lr = 1e-7;      ///< The rate of the first step.
  double max_lr = 10;        ///< The rate of the last step.
  int64_t num_steps = 100;   ///< At least 2; rates grow by the same factor from step to step.
  double smoothing = 0.98;   ///< Decay of the running mean of the loss, in [0, 1); the mean is bias-corrected.
  double divergence = 4;     ///< The trial ends when the smoothed loss exceeds its minimum by this factor.
  int64_t num_skipped = 10;  ///< Number of first losses that the suggestion ignores; their mean covers too few.
};

struct LrCurve {
  std::vector<double> lrs;
  std::vector<double> losses;  ///< For each rate in lrs, the smoothed loss just before the step with this rate.
  bool has_diverged = false;   ///< The trial ended before max_lr.
  /// The rate at which the smoothed loss falls fastest over the logarithm of the rate; nullopt if it never falls.
  std::optional<double> suggestion;
};

/// Collective. Trains with rates that rise from min_lr to max_lr until the loss diverges. Then restores parameters,
/// buffers and the optimizer's state and rates, and makes gradients undefined. `loss` returns the loss of the next
/// batch. During the trial all groups have the same rate. Losses are means over all ranks, so ranks stop
/// together and have the same curve. Random numbers and batches that `loss` consumes are not restored.
/// Errors  kInvalidArgument: an option is out of range. What `loss` throws is rethrown after everything is restored.
/// Source  Smith, "Cyclical Learning Rates for Training Neural Networks", WACV 2017, sec. 3.3; the smoothing, the end
///         at four times the lowest loss and the steepest descent are those of fastai and Lightning.
LrCurve find_lr(dist::Group& group, const NamedTensors& tensors, Optimizer& optimizer,
                const std::function<at::Tensor()>& loss, const FindLrOptions& options = {});

template <HasParameters M>
LrCurve find_lr(dist::Group& group, const M& model, Optimizer& optimizer, const std::function<at::Tensor()>& loss,
                const FindLrOptions& options = {}) {
  auto tensors = parameters_of(model);
  const auto buffers = buffers_of(model);
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  return find_lr(group, tensors, optimizer, loss, options);
}

}  // namespace yoke::train
