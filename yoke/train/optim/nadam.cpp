#include "yoke/train/optim/nadam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>

#include <cmath>

#include "yoke/train/optim/detail/options.h"

namespace yoke::train {
namespace {

// The momentum of step `step`. The base 0.96 of the schedule is from the paper.
double momentum_at(double step, const NAdamOptions& o) {
  return o.beta1 * (1.0 - 0.5 * std::pow(0.96, step * o.momentum_decay));
}

}  // namespace

NAdam::NAdam(NamedTensors parameters, const NAdamOptions& options)
    : NAdam(std::vector<ParameterGroup<NAdamOptions>>{{std::move(parameters), options}}) {}

NAdam::NAdam(std::vector<ParameterGroup<NAdamOptions>> groups)
    : OptimizerWith({.name = "NAdam", .is_fused = false}, groups,
                    {{"betas", std::array{&NAdamOptions::beta1, &NAdamOptions::beta2}, check_below_one},
                     {"eps", &NAdamOptions::eps, check_not_negative},
                     {"weight_decay", &NAdamOptions::weight_decay, check_not_negative},
                     {"momentum_decay", &NAdamOptions::momentum_decay, check_not_negative},
                     {"decoupled_weight_decay", &NAdamOptions::decoupled_weight_decay},
                     {"maximize", &NAdamOptions::maximize}}) {}

std::vector<Optimizer::StateKind> NAdam::state_kinds(size_t) const {
  return {{"exp_avg"}, {"exp_avg_sq"}, {.name = "mu_product", .initial = 1, .is_number = true}};
}

void NAdam::update_foreach(Batch& batch) {
  const auto& o = options_[batch.group];
  const auto &moments = batch.states[0], &squares = batch.states[1], &products = batch.states[2];
  const auto gradients = decayed_gradients(batch, o.decoupled_weight_decay);
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

template class OptimizerWith<NAdamOptions>;

}  // namespace yoke::train
