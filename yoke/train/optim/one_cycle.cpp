#include "yoke/train/optim/one_cycle.h"

#include <cmath>
#include <numbers>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

// Uses PyTorch's operations in PyTorch's order, so that the results have the same bits.
double anneal(Anneal kind, double start, double end, double fraction) {
  if (kind == Anneal::kLinear) return (end - start) * fraction + start;
  return end + (start - end) / 2.0 * (std::cos(std::numbers::pi * fraction) + 1);
}

double value_at(int64_t step, const OneCycleOptions& options, double first, double peak, double last) {
  if (step < 0 || step >= options.total_steps) {
    throw Error(ErrorCode::kInvalidArgument, "one-cycle schedule: step {} of {} steps", step, options.total_steps);
  }
  if (!(options.pct_start >= 0 && options.pct_start <= 1 && options.div_factor > 0 && options.final_div_factor > 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "one-cycle schedule: pct_start {} must be in [0, 1], div_factor {} and final_div_factor {} above 0",
                options.pct_start, options.div_factor, options.final_div_factor);
  }
  const auto now = static_cast<double>(step);
  const auto end = static_cast<double>(options.total_steps - 1);
  const double top = options.pct_start * static_cast<double>(options.total_steps) - 1;
  if (now <= top) {
    if (top == 0) return peak;  // a rise of one step; PyTorch divides by zero
    return anneal(options.anneal, first, peak, now / top);
  }
  return anneal(options.anneal, peak, last, (now - top) / (end - top));
}

}  // namespace

double one_cycle_lr(int64_t step, const OneCycleOptions& options) {
  const double first = options.max_lr / options.div_factor;
  return value_at(step, options, first, options.max_lr, first / options.final_div_factor);
}

double one_cycle_momentum(int64_t step, const OneCycleOptions& options) {
  return value_at(step, options, options.max_momentum, options.base_momentum, options.max_momentum);
}

}  // namespace yoke::train
