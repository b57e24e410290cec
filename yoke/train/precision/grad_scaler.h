// yoke/train/precision/grad_scaler.h -- keeps float16 gradients from vanishing, by scaling the loss.
//
//     GradScaler scaler;
//     for (...) {
//       optimizer.zero_grad();
//       at::Tensor loss;
//       {
//         const Autocast autocast({.device_type = device.type(), .dtype = at::kHalf});
//         loss = loss_of(model->forward(x), y);
//       }
//       scaler.scale(loss).backward();
//       scaler.unscale(optimizer);  // only needed to read or clip gradients
//       scaler.step(optimizer);     // changes nothing if a gradient is not finite
//       scaler.update();
//     }
//
// A ShardedOptimizer is used in the same way: its ranks agree on whether all gradients are finite.
//
// bfloat16 has float's range and does not need this.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace torch::optim {
class Optimizer;
}
namespace yoke::dist {
class Group;
}

namespace yoke::train {

class ScalableOptimizer;
struct StepGradients;

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     ///< Above 1; applied after growth_interval successive steps without an overflow.
  double backoff_factor = 0.5;  ///< Below 1; applied after a step with an overflow.
  int64_t growth_interval = 2000;
  bool enabled = true;  ///< If false, scale() returns its input, step() only steps, and other functions do nothing.
  /// For gradients that differ between ranks. The ranks of this group agree on whether any gradient overflowed, so
  /// either all ranks skip the step or all take it. Then unscale() and step() are collective. A ShardedOptimizer and an
  /// optimizer over a sharded network's parts provide their own group, so set this only for other gradients.
  /// DistributedDataParallel does not need it: an overflow on one rank reaches all ranks in the mean.
  dist::Group* group = nullptr;
};

/// Like torch.amp.GradScaler: the scale, the growth tracker and the parameters are equal to PyTorch's after each step.
///
/// Sync      yoke's optimizers do not wait for a GPU: step() passes them the scale and a flag for gradients that are
///           not finite, and their kernels divide the gradients or skip the step. For torch::optim's optimizers the CPU
///           decides, so step() waits for the device, like Python for optimizers that are not fused. scale_now(),
///           growth_tracker() and state_dict() wait too.
/// Several   optimizers may share a scaler: each one steps or skips separately, and one update() ends the iteration.
/// Devices   the scale is on the device of the first scaled loss; gradients may be on other devices.
/// Errors    kFailedPrecondition: calls in a wrong order (nothing scaled yet, unscale() twice or after step(), step()
///           twice since the last update(), update() without a checked gradient), or float16 gradients in unscale()
///           (named): keep parameters in float. kInvalidArgument: a factor is out of range.
/// Empty     if no parameter has a gradient, yoke's optimizers step without effect, like Python's fused ones.
///           torch::optim's optimizers throw kFailedPrecondition, like Python's that are not fused. In both cases
///           update() finds no checked gradient.
/// Lifetime  between two updates, optimizers are identified by their address.
/// Source    torch/amp/grad_scaler.py; Micikevicius et al., "Mixed Precision Training", ICLR 2018.
class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});

  /// Returns `outputs` times the scale. Differentiable.
  at::Tensor scale(const at::Tensor& outputs);

  /// Divides the gradients by the scale in place. Optional; call it once between backward and step.
  void unscale(ScalableOptimizer& optimizer);
  void unscale(torch::optim::Optimizer& optimizer);

  /// Does one step of the optimizer, with its own learning rates and the unscaled gradients. Skips the step if a
  /// gradient is not finite.
  void step(ScalableOptimizer& optimizer);
  void step(torch::optim::Optimizer& optimizer);
  /// Sets the rate of all groups, then steps: scaler.step(optimizer, schedule(i)). A skipped step sets it too, as a
  /// scheduler in Python does.
  void step(ScalableOptimizer& optimizer, double lr);

  /// Ends the iteration: the scale shrinks after an overflow, and grows after many steps without one.
  void update();
  void update(double new_scale);

  double scale_now() const;        ///< The current scale; 1 if disabled.
  int64_t growth_tracker() const;  ///< Steps without an overflow since the scale last changed.
  const GradScalerOptions& options() const { return options_; }

  /// Python's keys ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"), each a double or
  /// int64 tensor without dimensions; empty if disabled. Call it after update().
  TensorMap state_dict() const;

  /// On an error nothing changes. Does nothing if disabled.
  /// Errors  kInvalidArgument naming a key that is missing or is not one number.
  void load_state_dict(const TensorMap& state);

 private:
  enum class Stage : uint8_t { kReady, kUnscaled, kStepped };
  struct PerOptimizer {
    Stage stage = Stage::kReady;
    std::vector<at::Tensor> found_inf;  ///< One per device; 1 if a gradient is not finite.
  };

  void check_scaled(const char* what) const;
  void start(c10::Device device);
  /// Multiplies gradients by `inverse_scale` and checks whether they are finite.
  void check_gradients(PerOptimizer& state, const StepGradients& of, const at::Tensor& inverse_scale,
                       bool allow_half) const;
  PerOptimizer& ready_to_unscale(const void* optimizer);
  void unscale(PerOptimizer& state, const StepGradients& gradients) const;
  PerOptimizer& ready_to_step(const void* optimizer);
  at::Tensor combined(const std::vector<at::Tensor>& found_inf) const;

  GradScalerOptions options_;
  int64_t initial_growth_tracker_ = 0;
  at::Tensor scale_, growth_tracker_;  ///< float and int32, without dimensions; undefined before the first scale().
  std::map<const void*, PerOptimizer> optimizers_;
};

}  // namespace yoke::train
