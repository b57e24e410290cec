#include "yoke/train/meter.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"
#include "yoke/train/detail/recording.h"
#include "yoke/train/detail/step_phases.h"

namespace yoke::train {
namespace {

constexpr double kMaxWeight = 9007199254740992.0;  // 2^53: up to this value float64 counts exactly

double ratio(double sum, double weight) {
  return weight == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / weight;
}

/// Returns sums and weights as float64 [meters, 2] on `device`, without waiting for the device.
at::Tensor stack_totals(std::initializer_list<const Meter*> meters, c10::Device device) {
  if (meters.size() == 0) return at::zeros({0, 2}, at::TensorOptions(at::kDouble).device(device));
  std::vector<at::Tensor> sums;
  auto weights = at::empty({static_cast<int64_t>(meters.size())}, at::kDouble);
  auto* weight = weights.data_ptr<double>();
  for (const auto* meter : meters) {
    sums.push_back(meter->sum().to(device));
    *weight++ = static_cast<double>(meter->weight());
  }
  return at::stack({at::stack(sums), weights.to(device)}, 1);
}

}  // namespace

double Meter::read() const { return figure(ratio(sum().item<double>(), static_cast<double>(weight_))); }

double Meter::read(dist::Group& group) const { return read_all(group, {this})[0]; }

void Meter::reset() {
  sum_ = at::Tensor();
  weight_ = 0;
}

at::Tensor Meter::sum() const { return sum_.defined() ? sum_ : at::zeros({}, at::kDouble); }

at::Tensor Meter::state() const { return stack_totals({this}, at::kCPU)[0]; }

void Meter::load_state(const at::Tensor& state) {
  const bool fits = state.defined() && state.scalar_type() == at::kDouble && state.dim() == 1 && state.size(0) == 2;
  const double weight = fits ? state[1].item<double>() : -1;
  if (!(weight >= 0 && weight <= kMaxWeight && std::floor(weight) == weight)) {
    throw Error(ErrorCode::kInvalidArgument, "a meter's state is float64 [2], a sum and a count");
  }
  sum_ = state[0].cpu().clone();
  weight_ = static_cast<int64_t>(weight);
}

void Meter::accumulate(const at::Tensor& value, int64_t scale, int64_t weight) {
  detail::refuse_to_record("Meter", "add()", "return the tensor from the step, and add it outside");
  const c10::NoGradGuard no_grad;
  if (!sum_.defined()) {
    sum_ = at::zeros({}, value.options().dtype(at::kDouble).requires_grad(false));
  } else if (sum_.device() != value.device()) {
    // The sum is on a different device, because a state was loaded or the model was moved.
    sum_ = sum_.to(value.device());
  }
  sum_.add_(value.reshape({}), scale);  // computed in float64, for every dtype of the value
  weight_ += weight;
}

void Mean::add(const at::Tensor& value, int64_t weight) {
  if (value.numel() != 1 || weight < 0) {
    throw Error(ErrorCode::kInvalidArgument, "Mean takes one value and a weight of at least 0, not {} values and {}",
                value.numel(), weight);
  }
  if (weight > 0) accumulate(value, weight, weight);
}

double Perplexity::figure(double mean) const { return std::exp(mean); }

namespace {

void check_classes(const char* meter, const at::Tensor& logits, const at::Tensor& target) {
  if (logits.dim() != 2 || target.dim() != 1 || logits.size(0) != target.size(0) || logits.size(1) == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "{} takes logits [N, C] and target [N], not {} and {} dimensions of {} and {} elements", meter,
                logits.dim(), target.dim(), logits.numel(), target.numel());
  }
}

}  // namespace

void Accuracy::add(const at::Tensor& logits, const at::Tensor& target) {
  check_classes("Accuracy", logits, target);
  const c10::NoGradGuard no_grad;
  accumulate(logits.argmax(1).eq(target).sum(), 1, target.size(0));
}

TopAccuracy::TopAccuracy(int64_t k) : k_(k) {
  if (k < 1) throw Error(ErrorCode::kInvalidArgument, "TopAccuracy: the {} largest logits", k);
}

void TopAccuracy::add(const at::Tensor& logits, const at::Tensor& target) {
  check_classes("TopAccuracy", logits, target);
  const c10::NoGradGuard no_grad;
  const auto best = std::get<1>(logits.topk(std::min(k_, logits.size(1)), 1));  // [N, k]
  accumulate(best.eq(target.unsqueeze(1)).sum(), 1, target.size(0));
}

std::vector<double> read_all(dist::Group& group, std::initializer_list<const Meter*> meters) {
  auto totals = stack_totals(meters, group.device());
  {
    // On a GPU the host waits for its own kernels here, too.
    std::optional<detail::WaitForOthers> waits;
    if (group.device().is_cpu() && group.size() > 1) waits.emplace();
    group.all_reduce(totals);
  }
  totals = totals.cpu();
  std::vector<double> figures;
  int64_t i = 0;
  for (const auto* meter : meters) {
    const auto total = totals[i++];
    figures.push_back(meter->figure(ratio(total[0].item<double>(), total[1].item<double>())));
  }
  return figures;
}

at::Tensor gather_meters(dist::Group& group, std::initializer_list<const Meter*> meters) {
  return group.all_gather(stack_totals(meters, group.device())).cpu().transpose(0, 1).contiguous();
}

void restore_meters(const dist::Group& group, std::initializer_list<Meter*> meters, const at::Tensor& states) {
  if (!states.defined() || states.dim() != 3 || states.size(0) != static_cast<int64_t>(meters.size()) ||
      states.size(1) == 0) {
    throw Error(ErrorCode::kInvalidArgument, "these are not the states of {} meters", meters.size());
  }
  int64_t i = 0;
  for (auto* meter : meters) {
    const auto rows = states[i++];  // [ranks, 2]
    if (rows.size(0) == group.size()) {
      meter->load_state(rows[group.rank()]);
    } else if (group.rank() == 0) {
      meter->load_state(rows.sum(0));
    } else {
      meter->reset();
    }
  }
}

}  // namespace yoke::train
