#include "yoke/train/precision/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/optimizer.h>

#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"
#include "yoke/train/detail/recording.h"
#include "yoke/train/optim/optimizer.h"

namespace yoke::train {
namespace {

void check(const GradScalerOptions& options) {
  if (!(options.growth_factor > 1) || !(options.backoff_factor < 1) || !(options.init_scale > 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "GradScaler: growth_factor {} must be above 1, backoff_factor {} below 1, init_scale {} above 0",
                options.growth_factor, options.backoff_factor, options.init_scale);
  }
}

Error wrong_order(const char* what) { return {ErrorCode::kFailedPrecondition, "GradScaler: {}", what}; }

NamedTensors parameters_of(const torch::optim::Optimizer& optimizer) {
  NamedTensors parameters;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      parameters.emplace_back("number " + std::to_string(parameters.size()), parameter);
    }
  }
  return distinct(parameters);
}

at::Tensor number(double value) { return at::full({}, value, at::kDouble); }
at::Tensor number(int64_t value) { return at::full({}, value, at::kLong); }

const at::Tensor& entry(const TensorMap& state, const char* key) {
  const auto found = state.find(key);
  if (found == state.end() || !found->second.defined() || found->second.numel() != 1) {
    throw Error(ErrorCode::kInvalidArgument, "GradScaler: '{}' {} the state{}", key,
                found == state.end() ? "is not in" : "is not one number in",
                state.empty() ? ", which is empty: it may be that of a scaler that was not enabled" : "");
  }
  return found->second;
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  if (options_.enabled) check(options_);
}

void GradScaler::start(c10::Device device) {
  scale_ = at::full({}, options_.init_scale, at::dtype(at::kFloat).device(device));
  growth_tracker_ = at::full({}, initial_growth_tracker_, at::dtype(at::kInt).device(device));
}

at::Tensor GradScaler::scale(const at::Tensor& outputs) {
  if (!options_.enabled) return outputs;
  if (!scale_.defined()) start(outputs.device());
  return outputs.mul(scale_.to(outputs.device(), /*non_blocking=*/true));
}

void GradScaler::check_scaled(const char* what) const {
  if (!scale_.defined()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "GradScaler: {} before anything was scaled: call scale(loss).backward()", what);
  }
}

void GradScaler::check_gradients(PerOptimizer& state, const StepGradients& of, const at::Tensor& inverse_scale,
                                 bool allow_half) const {
  const at::NoGradGuard no_grad;
  std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, std::map<at::ScalarType, std::vector<at::Tensor>>> gradients;
  auto* recording = detail::recording_on_this_thread();
  for (const auto& [name, parameter] : of.parameters) {
    if (recording != nullptr) recording->use_gradient(parameter);
    auto gradient = parameter.grad();
    if (!gradient.defined()) continue;
    const bool is_half = gradient.scalar_type() == at::kHalf;
    if (is_half && !allow_half) {
      throw Error(
          ErrorCode::kFailedPrecondition,
          "GradScaler: the gradient of parameter {} is float16, where unscaling would lose it; keep parameters in "
          "float and let Autocast lower them",
          name);
    }
    if (gradient.is_sparse()) {
      // The sum of finite uncoalesced values may be infinite.
      if (is_half) parameter.mutable_grad() = gradient = gradient.coalesce();
      gradient = gradient._values();
    }
    gradients[{gradient.device().type(), gradient.device().index()}][gradient.scalar_type()].push_back(gradient);
  }
  state.found_inf.clear();
  for (const auto& [place, by_dtype] : gradients) {
    const c10::Device device(place.first, place.second);
    auto found_inf = at::zeros({}, at::dtype(at::kFloat).device(device));
    const auto here = inverse_scale.to(device, /*non_blocking=*/!device.is_cpu());
    for (const auto& [dtype, tensors] : by_dtype)
      at::_amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, here);
    state.found_inf.push_back(std::move(found_inf));
  }
  if (auto* group = of.group != nullptr ? of.group : options_.group;
      group != nullptr) {  // collective, so a rank without gradients takes part too
    auto any = state.found_inf.empty() ? at::zeros_like(scale_) : combined(state.found_inf);
    group->all_reduce(any, dist::ReduceOp::kMax);
    state.found_inf = {any};
  }
}

at::Tensor GradScaler::combined(const std::vector<at::Tensor>& found_inf) const {
  at::Tensor any;
  for (const auto& one : found_inf) {
    const auto here = one.to(scale_.device(), /*non_blocking=*/true);
    any = any.defined() ? at::maximum(any, here) : here;
  }
  return any;
}

GradScaler::PerOptimizer& GradScaler::ready_to_unscale(const void* optimizer) {
  check_scaled("unscale()");
  auto& state = optimizers_[optimizer];
  if (state.stage == Stage::kUnscaled) throw wrong_order("unscale() twice for this optimizer since the last update()");
  if (state.stage == Stage::kStepped) throw wrong_order("unscale() after step(); call update() first");
  return state;
}

void GradScaler::unscale(PerOptimizer& state, const StepGradients& gradients) const {
  // Computed in double, because some compilers' float division is wrong in the last bit.
  check_gradients(state, gradients, scale_.to(at::kDouble).reciprocal().to(at::kFloat), /*allow_half=*/false);
  state.stage = Stage::kUnscaled;
}

void GradScaler::unscale(ScalableOptimizer& optimizer) {
  if (!options_.enabled) return;
  auto& state = ready_to_unscale(&optimizer);
  unscale(state, optimizer.step_gradients());
}

void GradScaler::unscale(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  auto& state = ready_to_unscale(&optimizer);
  unscale(state, {parameters_of(optimizer)});
}

GradScaler::PerOptimizer& GradScaler::ready_to_step(const void* optimizer) {
  check_scaled("step()");
  auto& state = optimizers_[optimizer];
  if (state.stage == Stage::kStepped) throw wrong_order("step() twice for this optimizer since the last update()");
  return state;
}

void GradScaler::step(ScalableOptimizer& optimizer) {
  if (!options_.enabled) return optimizer.step();
  auto& state = ready_to_step(&optimizer);
  GradScale scale;
  if (state.stage == Stage::kReady) {
    check_gradients(state, optimizer.step_gradients(), at::ones_like(scale_), /*allow_half=*/true);
    scale.scale = scale_;
  }
  scale.found_inf = combined(state.found_inf);
  optimizer.step(scale);
  state.stage = Stage::kStepped;
}

void GradScaler::step(ScalableOptimizer& optimizer, double lr) {
  optimizer.set_lr(lr);
  step(optimizer);
}

void GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return;
  }
  auto& state = ready_to_step(&optimizer);
  if (state.stage == Stage::kReady) unscale(optimizer);
  if (state.found_inf.empty()) throw wrong_order("step() of an optimizer none of whose parameters has a gradient");
  if (combined(state.found_inf).item<float>() == 0) optimizer.step();
  state.stage = Stage::kStepped;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  check_scaled("update()");
  std::vector<at::Tensor> found_inf;
  for (const auto& [optimizer, state] : optimizers_) {
    found_inf.insert(found_inf.end(), state.found_inf.begin(), state.found_inf.end());
  }
  if (found_inf.empty()) throw wrong_order("update() before any gradient was checked, by step() or unscale()");
  at::_amp_update_scale_(scale_, growth_tracker_, combined(found_inf), options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  optimizers_.clear();
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  check_scaled("update()");
  scale_.fill_(new_scale);
  optimizers_.clear();
}

double GradScaler::scale_now() const {
  if (!options_.enabled) return 1;
  return scale_.defined() ? scale_.item<float>() : options_.init_scale;
}

int64_t GradScaler::growth_tracker() const {
  if (!options_.enabled) return 0;
  return growth_tracker_.defined() ? growth_tracker_.item<int>() : initial_growth_tracker_;
}

TensorMap GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  return {{"scale", number(scale_now())},
          {"growth_factor", number(options_.growth_factor)},
          {"backoff_factor", number(options_.backoff_factor)},
          {"growth_interval", number(options_.growth_interval)},
          {"_growth_tracker", number(growth_tracker())}};
}

void GradScaler::load_state_dict(const TensorMap& state) {
  if (!options_.enabled) return;
  auto loaded = options_;
  loaded.init_scale = entry(state, "scale").item<double>();
  loaded.growth_factor = entry(state, "growth_factor").item<double>();
  loaded.backoff_factor = entry(state, "backoff_factor").item<double>();
  loaded.growth_interval = entry(state, "growth_interval").item<int64_t>();
  const auto tracker = entry(state, "_growth_tracker").item<int64_t>();
  check(loaded);
  options_ = loaded;
  initial_growth_tracker_ = tracker;
  if (scale_.defined()) start(scale_.device());
}

}  // namespace yoke::train
