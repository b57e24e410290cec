#include "yoke/train/optim/plateau.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

void require_option(bool is_met, const char* requirement) {
  if (!is_met) throw Error(ErrorCode::kInvalidArgument, "plateau: {}", requirement);
}

}  // namespace

ReduceOnPlateau::ReduceOnPlateau(const PlateauOptions& options)
    : options_(options),
      lr_(options.lr),
      best_(options.better == Better::kLower ? std::numeric_limits<double>::infinity()
                                             : -std::numeric_limits<double>::infinity()) {
  require_option(options.lr >= 0 && std::isfinite(options.lr), "lr must be a finite number, and not negative");
  require_option(options.factor >= 0 && options.factor < 1, "factor must be in [0, 1)");
  require_option(options.patience >= 0, "patience must not be negative");
  require_option(options.threshold >= 0, "threshold must not be negative");
  require_option(options.cooldown >= 0, "cooldown must not be negative");
  require_option(options.min_lr >= 0, "min_lr must not be negative");
  require_option(options.eps >= 0, "eps must not be negative");
}

bool ReduceOnPlateau::observe(double metric) {
  const bool is_relative = options_.threshold_mode == Threshold::kRelative;
  const bool is_better = options_.better == Better::kLower
                             ? metric < (is_relative ? best_ * (1 - options_.threshold) : best_ - options_.threshold)
                             : metric > (is_relative ? best_ * (options_.threshold + 1) : best_ + options_.threshold);
  if (is_better) {
    best_ = metric;
    num_bad_ = 0;
  } else {
    ++num_bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    num_bad_ = 0;
  }
  if (num_bad_ <= options_.patience) return false;
  cooldown_ = options_.cooldown;
  num_bad_ = 0;
  const double reduced = std::max(lr_ * options_.factor, options_.min_lr);
  if (!(lr_ - reduced > options_.eps)) return false;
  lr_ = reduced;
  return true;
}

TensorMap ReduceOnPlateau::state_dict() const {
  const auto number = [](double value) { return at::scalar_tensor(value, at::kDouble); };
  return {{"lr", number(lr_)},
          {"best", number(best_)},
          {"num_bad", number(static_cast<double>(num_bad_))},
          {"cooldown", number(static_cast<double>(cooldown_))}};
}

void ReduceOnPlateau::load_state_dict(const TensorMap& state) {
  for (const auto& [name, tensor] : state) {
    if (name != "lr" && name != "best" && name != "num_bad" && name != "cooldown") {
      throw Error(ErrorCode::kInvalidArgument, "plateau: state '{}' is not one of a plateau", name);
    }
  }
  const auto number = [&](const char* name) {
    const auto found = state.find(name);
    if (found == state.end() || !found->second.defined() || found->second.numel() != 1) {
      throw Error(ErrorCode::kInvalidArgument, "plateau: state '{}' is missing, or not one number", name);
    }
    return found->second.item<double>();
  };
  const double lr = number("lr"), best = number("best"), num_bad = number("num_bad"), cooldown = number("cooldown");
  lr_ = lr;
  best_ = best;
  num_bad_ = static_cast<int64_t>(num_bad);
  cooldown_ = static_cast<int64_t>(cooldown);
}

}  // namespace yoke::train
