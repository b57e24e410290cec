// yoke/train/optim/one_cycle.h -- the one-cycle schedule: the rate rises to its peak, then falls to almost 0.
#pragma once

#include <cstdint>

namespace yoke::train {

enum class Anneal { kCos, kLinear };

/// The options have PyTorch's names and defaults. The schedule has two phases (PyTorch's three_phase=False).
struct OneCycleOptions {
  int64_t total_steps = 0;  ///< Optimizer steps in the whole training: epochs times steps per epoch.
  double max_lr = 0;        ///< The peak, reached at step pct_start * total_steps - 1.
  double pct_start = 0.3;   ///< The share of steps in which the rate rises, in [0, 1].
  Anneal anneal = Anneal::kCos;
  double div_factor = 25;         ///< The first rate is max_lr / div_factor.
  double final_div_factor = 1e4;  ///< The last rate is the first one / final_div_factor.
  double base_momentum = 0.85;    ///< Momentum at the peak of the rate.
  double max_momentum = 0.95;     ///< Momentum at the beginning and at the end.
};

/// The learning rate for step `step` of [0, total_steps): the rate that torch.optim.lr_scheduler.OneCycleLR sets for
/// this step. The two rates have the same bits, unless the libm's cosine differs. The function is pure, so resuming
/// needs no saved state.
/// Errors  kInvalidArgument: the step is outside the schedule, or an option is out of range.
/// Source  Smith and Topin, "Super-Convergence", 2017; torch/optim/lr_scheduler.py.
double one_cycle_lr(int64_t step, const OneCycleOptions& options);

/// The momentum for step `step`. The momentum falls while the rate rises, as with PyTorch's cycle_momentum=True.
double one_cycle_momentum(int64_t step, const OneCycleOptions& options);

}  // namespace yoke::train
