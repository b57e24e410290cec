#include "yoke/train/optim/adam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include <cmath>

#include "yoke/base/error.h"
#include "yoke/train/optim/detail/options.h"

namespace yoke::train {
namespace {

/// Converts between AdamOptions and AdamWOptions, which have the same members.
template <class To, class From>
To converted(const From& o) {
  return {.lr = o.lr,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.eps,
          .weight_decay = o.weight_decay,
          .amsgrad = o.amsgrad,
          .maximize = o.maximize};
}

std::vector<ParameterGroup<AdamWOptions>> with_decay(const std::vector<ParameterGroup<AdamOptions>>& groups) {
  std::vector<ParameterGroup<AdamWOptions>> result;
  for (const auto& group : groups) result.push_back({group.parameters, converted<AdamWOptions>(group.options)});
  return result;
}

}  // namespace

AdamBase::AdamBase(const char* name, const std::vector<ParameterGroup<AdamWOptions>>& groups, bool is_decoupled)
    : OptimizerWith({.name = name}, groups,
                    {{"betas", std::array{&AdamWOptions::beta1, &AdamWOptions::beta2}, check_below_one},
                     {"eps", &AdamWOptions::eps, check_not_negative},
                     {"weight_decay", &AdamWOptions::weight_decay, check_not_negative},
                     {"amsgrad", &AdamWOptions::amsgrad},
                     {"maximize", &AdamWOptions::maximize}}),
      is_decoupled_(is_decoupled) {}

std::vector<Optimizer::StateKind> AdamBase::state_kinds(size_t group) const {
  if (options_[group].amsgrad) return {{"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq"}};
  return {{"exp_avg"}, {"exp_avg_sq"}};
}

void AdamBase::update_fused(Batch& batch, const KernelScale& scale) {
  const auto& o = options_[batch.group];
  auto* const kernel = is_decoupled_ ? &at::_ops::_fused_adamw_::call : &at::_ops::_fused_adam_::call;
  kernel(batch.parameters, batch.gradients, batch.states[0], batch.states[1], batch.states[2], batch.steps, batch.lr,
         o.beta1, o.beta2, o.weight_decay, o.eps, o.amsgrad, o.maximize, scale.scale, scale.found_inf);
}

void AdamBase::update_foreach(Batch& batch) {
  const auto& o = options_[batch.group];
  const auto &moments = batch.states[0], &squares = batch.states[1];
  const auto gradients = decayed_gradients(batch, is_decoupled_);
  at::_foreach_lerp_(moments, gradients, 1 - o.beta1);
  at::_foreach_mul_(squares, o.beta2);
  at::_foreach_addcmul_(squares, gradients, gradients, 1 - o.beta2);
  if (o.amsgrad) at::_foreach_maximum_(batch.states[2], squares);

  std::vector<at::Scalar> sizes, corrections;  // each parameter has its own step count
  for (const auto& step : batch.steps) {
    const double count = *step.const_data_ptr<float>();
    sizes.emplace_back(-batch.lr / (1 - std::pow(o.beta1, count)));
    corrections.emplace_back(std::sqrt(1 - std::pow(o.beta2, count)));
  }
  auto denominators = at::_foreach_sqrt(o.amsgrad ? batch.states[2] : squares);
  at::_foreach_div_(denominators, corrections);
  at::_foreach_add_(denominators, o.eps);
  at::_foreach_addcdiv_(batch.parameters, moments, denominators, sizes);
}

OptionMap AdamBase::options_of(size_t group) const {
  auto map = OptimizerWith::options_of(group);
  map["decoupled_weight_decay"] = is_decoupled_;
  return map;
}

void AdamBase::set_options(size_t group, const OptionMap& map) {
  bool is_decoupled = is_decoupled_;
  OptionReader(name(), map).read("decoupled_weight_decay", is_decoupled);
  if (is_decoupled != is_decoupled_) {
    throw Error(ErrorCode::kInvalidArgument, "{}: decoupled_weight_decay is {}: use {}", name(), is_decoupled,
                is_decoupled ? "AdamW" : "Adam");
  }
  OptimizerWith::set_options(group, map);
}

Adam::Adam(NamedTensors parameters, const AdamOptions& options)
    : AdamBase("Adam", {{std::move(parameters), converted<AdamWOptions>(options)}}, /*is_decoupled=*/false) {}

Adam::Adam(const std::vector<ParameterGroup<AdamOptions>>& groups)
    : AdamBase("Adam", with_decay(groups), /*is_decoupled=*/false) {}

AdamOptions Adam::options(size_t group) const { return converted<AdamOptions>(AdamBase::options(group)); }

AdamW::AdamW(NamedTensors parameters, const AdamWOptions& options)
    : AdamBase("AdamW", {{std::move(parameters), options}}, /*is_decoupled=*/true) {}

AdamW::AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups)
    : AdamBase("AdamW", groups, /*is_decoupled=*/true) {}

template class OptimizerWith<AdamWOptions>;

}  // namespace yoke::train
