#include "yoke/train/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

void require(bool is_met, const char* schedule, const char* requirement) {
  if (!is_met) throw Error(ErrorCode::kInvalidArgument, "{}: {}", schedule, requirement);
}

void require_lr(const char* schedule, double lr) {
  require(lr >= 0 && std::isfinite(lr), schedule, "lr must be a finite number, and not negative");
}

// The common part of all schedules: refuses a negative step.
template <class Function>
Schedule checked(const char* schedule, Function function) {
  return [schedule, function = std::move(function)](int64_t step) {
    if (step < 0) throw Error(ErrorCode::kInvalidArgument, "{}: step {}", schedule, step);
    return function(step);
  };
}

double ratio(int64_t step, int64_t num_steps) {
  return static_cast<double>(std::min(step, num_steps)) / static_cast<double>(num_steps);
}

double cosine(double lr, double min_lr, int64_t step, int64_t num_steps) {
  const double fraction = static_cast<double>(step) / static_cast<double>(num_steps);
  return min_lr + (lr - min_lr) * (1 + std::cos(std::numbers::pi * fraction)) / 2;
}

}  // namespace

Schedule constant_lr(const ConstantLrOptions& options) {
  constexpr auto kName = "constant_lr";
  require_lr(kName, options.lr);
  require(options.factor >= 0 && options.factor <= 1, kName, "factor must be in [0, 1]");
  require(options.num_steps >= 0, kName, "num_steps must not be negative");
  return checked(
      kName, [options](int64_t step) { return step < options.num_steps ? options.lr * options.factor : options.lr; });
}

Schedule linear_lr(const LinearLrOptions& options) {
  constexpr auto kName = "linear_lr";
  require_lr(kName, options.lr);
  require(options.start_factor >= 0 && options.start_factor <= 1, kName, "start_factor must be in [0, 1]");
  require(options.end_factor >= 0 && options.end_factor <= 1, kName, "end_factor must be in [0, 1]");
  require(options.num_steps > 0, kName, "num_steps must be above 0");
  return checked(kName, [options](int64_t step) {
    const double rise = options.end_factor - options.start_factor;
    return options.lr * (options.start_factor + rise * ratio(step, options.num_steps));
  });
}

Schedule polynomial_lr(const PolynomialLrOptions& options) {
  constexpr auto kName = "polynomial_lr";
  require_lr(kName, options.lr);
  require(options.power >= 0 && std::isfinite(options.power), kName, "power must be finite, and not negative");
  require(options.num_steps > 0, kName, "num_steps must be above 0");
  return checked(kName, [options](int64_t step) {
    return options.lr * std::pow(1 - ratio(step, options.num_steps), options.power);
  });
}

Schedule exponential_lr(const ExponentialLrOptions& options) {
  constexpr auto kName = "exponential_lr";
  require_lr(kName, options.lr);
  require(options.gamma > 0 && std::isfinite(options.gamma), kName, "gamma must be given, above 0");
  return checked(kName,
                 [options](int64_t step) { return options.lr * std::pow(options.gamma, static_cast<double>(step)); });
}

Schedule step_lr(const StepLrOptions& options) {
  constexpr auto kName = "step_lr";
  require_lr(kName, options.lr);
  require(options.step_size > 0, kName, "step_size must be given, above 0");
  require(options.gamma >= 0 && std::isfinite(options.gamma), kName, "gamma must be finite, and not negative");
  return checked(kName, [options](int64_t step) {
    return options.lr * std::pow(options.gamma, static_cast<double>(step / options.step_size));
  });
}

Schedule multi_step_lr(MultiStepLrOptions options) {
  constexpr auto kName = "multi_step_lr";
  require_lr(kName, options.lr);
  require(options.gamma >= 0 && std::isfinite(options.gamma), kName, "gamma must be finite, and not negative");
  std::sort(options.milestones.begin(), options.milestones.end());
  return checked(kName, [options = std::move(options)](int64_t step) {
    const auto& milestones = options.milestones;
    const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
    return options.lr * std::pow(options.gamma, static_cast<double>(passed));
  });
}

Schedule cosine_annealing_lr(const CosineAnnealingLrOptions& options) {
  constexpr auto kName = "cosine_annealing_lr";
  require_lr(kName, options.lr);
  require_lr(kName, options.min_lr);
  require(options.num_steps > 0, kName, "num_steps must be given, above 0");
  return checked(kName,
                 [options](int64_t step) { return cosine(options.lr, options.min_lr, step, options.num_steps); });
}

Schedule cosine_annealing_warm_restarts(const CosineWarmRestartsOptions& options) {
  constexpr auto kName = "cosine_annealing_warm_restarts";
  require_lr(kName, options.lr);
  require_lr(kName, options.min_lr);
  require(options.first_num_steps > 0, kName, "first_num_steps must be given, above 0");
  require(options.growth >= 1, kName, "growth must be at least 1");
  return checked(kName, [options](int64_t step) {
    constexpr auto kMost = std::numeric_limits<int64_t>::max();
    int64_t num_steps = options.first_num_steps;
    if (options.growth == 1) {
      step %= num_steps;
    } else {
      while (step >= num_steps) {
        step -= num_steps;
        num_steps = num_steps > kMost / options.growth ? kMost : num_steps * options.growth;
      }
    }
    return cosine(options.lr, options.min_lr, step, num_steps);
  });
}

Schedule one_cycle_lr(const OneCycleOptions& options) {
  if (options.total_steps > 0) one_cycle_lr(0, options);  // throws if an option is wrong
  return [options](int64_t step) { return one_cycle_lr(step, options); };
}

Schedule sequence(std::vector<std::pair<int64_t, Schedule>> parts) {
  constexpr auto kName = "sequence";
  require(!parts.empty(), kName, "there must be a schedule");
  for (const auto& [num_steps, schedule] : parts) {
    require(num_steps >= 0, kName, "a number of steps must not be negative");
    require(schedule != nullptr, kName, "a schedule is empty");
  }
  return checked(kName, [parts = std::move(parts)](int64_t step) {
    size_t i = 0;
    for (; i + 1 < parts.size() && step >= parts[i].first; ++i) step -= parts[i].first;
    return parts[i].second(step);
  });
}

Schedule product(std::vector<Schedule> factors) {
  constexpr auto kName = "product";
  require(!factors.empty(), kName, "there must be a schedule");
  for (const auto& factor : factors) require(factor != nullptr, kName, "a schedule is empty");
  return checked(kName, [factors = std::move(factors)](int64_t step) {
    double value = 1;
    for (const auto& factor : factors) value *= factor(step);
    return value;
  });
}

}  // namespace yoke::train
