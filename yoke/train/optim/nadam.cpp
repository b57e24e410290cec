#include "yoke/train/optim/nadam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_sqrt.h>

#include <cmath>

#include "yoke/train/optim/detail/options.h"

namespace yoke::train {
namespace {

constexpr const char* kNAdam = "NAdam";

void check(const NAdamOptions& options) {
  check_below_one(kNAdam, "beta1", options.beta1);
  check_below_one(kNAdam, "beta2", options.beta2);
  check_not_negative(kNAdam, "eps", options.eps);
  check_not_negative(kNAdam, "weight_decay", options.weight_decay);
  check_not_negative(kNAdam, "momentum_decay", options.momentum_decay);
}

// The momentum of step `step`. The base 0.96 of the schedule is from the paper.
double momentum_at(double step, const NAdamOptions& o) {
  return o.beta1 * (1.0 - 0.5 * std::pow(0.96, step * o.momentum_decay));
}

}  // namespace

NAdam::NAdam(NamedTensors parameters, const NAdamOptions& options)
    : NAdam(std::vector<ParameterGroup<NAdamOptions>>{{std::move(parameters), options}}) {}

NAdam::NAdam(std::vector<ParameterGroup<NAdamOptions>> groups)
    : Optimizer({.name = kNAdam, .is_fused = false}, parameters_of(groups)) {
  for (const auto& group : groups) {
    check(group.options);
    options_.push_back(group.options);
  }
}

NAdamOptions NAdam::options(size_t group) const {
  check_group(group);
  auto options = options_[group];
  options.lr = lr(group);
  return options;
}

std::vector<Optimizer::StateKind> NAdam::state_kinds(size_t) const {
  return {{"exp_avg"}, {"exp_avg_sq"}, {.name = "mu_product", .initial = 1, .is_number = true}};
}

void NAdam::update_foreach(Batch& batch) {
  const auto& o = options_[batch.group];
  const auto &moments = batch.states[0], &squares = batch.states[1], &products = batch.states[2];
  auto gradients = batch.gradients;
  if (o.maximize) gradients = at::_foreach_neg(gradients);
  if (o.weight_decay != 0 && o.decoupled_weight_decay) {
    at::_foreach_mul_(batch.parameters, 1 - batch.lr * o.weight_decay);
  }
  if (o.weight_decay != 0 && !o.decoupled_weight_decay) {
    gradients = at::_foreach_add(gradients, batch.parameters, o.weight_decay);
  }
  at::_foreach_lerp_(moments, gradients, 1 - o.beta1);
  at::_foreach_mul_(squares, o.beta2);
  at::_foreach_addcmul_(squares, gradients, gradients, 1 - o.beta2);

  std::vector<at::Scalar> corrections, of_gradients, of_moments;  // each parameter has its own step count
  for (size_t i = 0; i < batch.steps.size(); ++i) {
    const double step = *batch.steps[i].const_data_ptr<float>();
    const double momentum = momentum_at(step, o), next = momentum_at(step + 1, o);
    auto& product = *products[i].mutable_data_ptr<float>();
    product *= static_cast<float>(momentum);
    corrections.emplace_back(std::sqrt(1 - std::pow(o.beta2, step)));
    of_gradients.emplace_back(-(batch.lr * (1.0 - momentum) / (1.0 - product)));
    of_moments.emplace_back(-(batch.lr * next / (1.0 - product * next)));
  }
  auto denominators = at::_foreach_sqrt(squares);
  at::_foreach_div_(denominators, corrections);
  at::_foreach_add_(denominators, o.eps);
  at::_foreach_addcdiv_(batch.parameters, gradients, denominators, of_gradients);
  at::_foreach_addcdiv_(batch.parameters, moments, denominators, of_moments);
}

OptionMap NAdam::options_of(size_t group) const {
  const auto& o = options_[group];
  return {{"betas", std::vector<double>{o.beta1, o.beta2}},
          {"eps", o.eps},
          {"weight_decay", o.weight_decay},
          {"momentum_decay", o.momentum_decay},
          {"decoupled_weight_decay", o.decoupled_weight_decay},
          {"maximize", o.maximize}};
}

void NAdam::set_options(size_t group, const OptionMap& map) {
  auto options = options_[group];
  const OptionReader reader(kNAdam, map);
  std::vector<double> betas{options.beta1, options.beta2};
  reader.read("betas", betas);
  reader.read("eps", options.eps);
  reader.read("weight_decay", options.weight_decay);
  reader.read("momentum_decay", options.momentum_decay);
  reader.read("decoupled_weight_decay", options.decoupled_weight_decay);
  reader.read("maximize", options.maximize);
  if (betas.size() != 2) throw Error(ErrorCode::kInvalidArgument, "{}: betas are {}, not 2", kNAdam, betas.size());
  options.beta1 = betas[0];
  options.beta2 = betas[1];
  check(options);
  options_[group] = options;
}

}  // namespace yoke::train
