#include "yoke/train/optim/find_lr.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"
#include "yoke/train/meter.h"
#include "yoke/train/optim/detail/options.h"

namespace yoke::train {
namespace {

constexpr const char* kFindLr = "find_lr";

void check(const FindLrOptions& o) {
  check_finite(kFindLr, "max_lr", o.max_lr);
  if (!(o.min_lr > 0) || !(o.min_lr < o.max_lr)) {
    throw Error(ErrorCode::kInvalidArgument, "{}: min_lr {} must be above 0 and below max_lr {}", kFindLr, o.min_lr,
                o.max_lr);
  }
  if (o.num_steps < 2)
    throw Error(ErrorCode::kInvalidArgument, "{}: num_steps {} must be 2 or more", kFindLr, o.num_steps);
  check_below_one(kFindLr, "smoothing", o.smoothing);
  if (!(o.divergence > 1))
    throw Error(ErrorCode::kInvalidArgument, "{}: divergence {} must be above 1", kFindLr, o.divergence);
  if (o.num_skipped < 0) throw Error(ErrorCode::kInvalidArgument, "{}: num_skipped {}", kFindLr, o.num_skipped);
}

// Saves and restores what the trial changes.
class Before {
 public:
  Before(const NamedTensors& tensors, Optimizer& optimizer) : optimizer_(optimizer) {
    for (const auto& [name, tensor] : distinct(tensors)) {
      if (tensor.defined()) tensors_.emplace_back(tensor, tensor.detach().clone());
    }
    for (const auto& [name, tensor] : optimizer.state_dict()) state_.emplace(name, tensor.clone());
  }

  void put_back() const {
    const c10::NoGradGuard no_grad;
    for (const auto& [tensor, values] : tensors_) tensor.copy_(values);
    optimizer_.load_state_dict(state_);
    optimizer_.zero_grad();
  }

 private:
  Optimizer& optimizer_;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;
  TensorMap state_;  ///< Also has the learning rates.
};

LrCurve try_rates(dist::Group& group, Optimizer& optimizer, const std::function<at::Tensor()>& loss,
                  const FindLrOptions& o) {
  LrCurve curve;
  double running = 0, weight = 0, lowest = 0;
  for (int64_t step = 0; step < o.num_steps; ++step) {
    optimizer.zero_grad();
    const auto value = loss();
    Mean mean;
    mean.add(value.detach(), 1);
    const double over_ranks = mean.read(group);
    running = o.smoothing * running + (1 - o.smoothing) * over_ranks;
    weight = o.smoothing * weight + (1 - o.smoothing);
    const double smoothed = running / weight;
    lowest = step == 0 ? smoothed : std::min(lowest, smoothed);
    curve.has_diverged = !std::isfinite(over_ranks) || smoothed > lowest + (o.divergence - 1) * std::abs(lowest);
    if (curve.has_diverged) break;
    const double lr =
        o.min_lr * std::pow(o.max_lr / o.min_lr, static_cast<double>(step) / static_cast<double>(o.num_steps - 1));
    curve.lrs.push_back(lr);
    curve.losses.push_back(smoothed);
    value.backward();
    optimizer.step(lr);
  }
  return curve;
}

std::optional<double> steepest(const LrCurve& curve, int64_t num_skipped) {
  // Rates are evenly spaced on a logarithmic scale, so a difference of losses is proportional to a slope. Each
  // difference spans a tenth of the curve on both sides, because losses of single batches are noisy. Early losses are
  // the noisiest, since their running mean covers only a few batches.
  std::optional<double> result;
  double lowest_slope = 0;
  const auto reach = std::max<size_t>(1, curve.losses.size() / 10);
  for (auto i = std::max(static_cast<size_t>(num_skipped), reach); i + reach < curve.losses.size(); ++i) {
    const double slope = curve.losses[i + reach] - curve.losses[i - reach];
    if (slope >= lowest_slope) continue;
    lowest_slope = slope;
    result = curve.lrs[i];
  }
  return result;
}

}  // namespace

LrCurve find_lr(dist::Group& group, const NamedTensors& tensors, Optimizer& optimizer,
                const std::function<at::Tensor()>& loss, const FindLrOptions& options) {
  check(options);
  const Before before(tensors, optimizer);
  LrCurve curve;
  try {
    curve = try_rates(group, optimizer, loss, options);
  } catch (...) {
    before.put_back();
    throw;
  }
  before.put_back();
  curve.suggestion = steepest(curve, options.num_skipped);
  return curve;
}

}  // namespace yoke::train
