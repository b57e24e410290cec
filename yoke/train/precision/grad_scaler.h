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
//       scaler.unscale(optimizer);  // only to look at gradients, or clip them
//       scaler.step(optimizer);     // leaves everything as it is where a gradient is not finite
//       scaler.update();
//     }
//
// A ShardedOptimizer is taken as any other: its ranks agree whether a gradient is finite.
//
// bfloat16 has float's range and needs none of this.
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
  double growth_factor = 2;     ///< Above 1: after growth_interval steps in a row without an overflow.
  double backoff_factor = 0.5;  ///< Below 1: after a step with one.
  int64_t growth_interval = 2000;
  bool enabled = true;  ///< When false, scale() and step() pass through, and the others do nothing.
  /// For gradients that differ between ranks: the ranks agree whether any of them overflowed, so all skip or none. Then
  /// unscale() and step() are collective. An optimizer over a sharded network's parts and a ShardedOptimizer bring
  /// their own; it is needed where a rank may have no part of any parameter. With DistributedDataParallel an overflow
  /// on one rank is in the mean on all.
  dist::Group* group = nullptr;
};

/// torch.amp.GradScaler: equal to it in the scale, the growth tracker and the parameters after each step.
///
/// Sync      none with our optimizers on a GPU: step() hands them the scale and whether a gradient is not finite, and
///           their kernels divide and skip. torch::optim's are skipped on the CPU, which waits for the device, as
///           Python does with optimizers that are not fused. scale_now(), growth_tracker() and state_dict() wait too.
/// Several   optimizers may share a scaler: each steps or skips for itself, and one update() ends the iteration.
/// Devices   the scale lives where the first scaled loss does; gradients may be on others.
/// Errors    kFailedPrecondition for a wrong order: nothing scaled yet, unscale() twice or after step(), step() twice
///           since the last update(), update() without a checked gradient; float16 gradients in unscale() (named):
///           keep parameters in float. kInvalidArgument for factors outside their ranges.
/// Empty     where no parameter has a gradient our optimizers step, changing nothing, as Python's fused ones;
///           torch::optim's are refused (kFailedPrecondition), as Python's others. Neither is a checked gradient.
/// Lifetime  optimizers are told apart by their address between two updates.
/// Source    torch/amp/grad_scaler.py; Micikevicius et al., "Mixed Precision Training", ICLR 2018.
class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});

  /// `outputs` times the scale, differentiable.
  at::Tensor scale(const at::Tensor& outputs);

  /// Divides the gradients by the scale in place, once between backward and step. Optional.
  void unscale(ScalableOptimizer& optimizer);
  void unscale(torch::optim::Optimizer& optimizer);

  /// One step of the optimizer with its own learning rates, on unscaled gradients, unless one of them is not finite.
  void step(ScalableOptimizer& optimizer);
  void step(torch::optim::Optimizer& optimizer);

  /// Ends the iteration: the scale shrinks after an overflow, and grows after many steps without.
  void update();
  void update(double new_scale);

  double scale_now() const;        ///< 1 when disabled.
  int64_t growth_tracker() const;  ///< Steps without an overflow since the scale last changed.
  const GradScalerOptions& options() const { return options_; }

  /// Python's keys ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"), each a double or
  /// int64 without dimensions; empty when disabled. To be taken after update().
  TensorMap state_dict() const;

  /// All or nothing; does nothing when disabled.
  /// Errors  kInvalidArgument naming a key that is missing or is not one number.
  void load_state_dict(const TensorMap& state);

 private:
  enum class Stage : uint8_t { kReady, kUnscaled, kStepped };
  struct PerOptimizer {
    Stage stage = Stage::kReady;
    std::vector<at::Tensor> found_inf;  ///< By device; 1 where a gradient is not finite.
  };

  void check_scaled(const char* what) const;
  void start(c10::Device device);
  /// Multiplies gradients by `inverse_scale` and looks for what is not finite.
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
