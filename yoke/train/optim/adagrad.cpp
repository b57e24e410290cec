#include "yoke/train/optim/adagrad.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/sparse_coo_tensor.h>

#include "yoke/train/optim/detail/options.h"

namespace yoke::train {
namespace {

constexpr const char* kAdagrad = "Adagrad";

void check(const AdagradOptions& options) {
  check_not_negative(kAdagrad, "lr_decay", options.lr_decay);
  check_not_negative(kAdagrad, "weight_decay", options.weight_decay);
  check_not_negative(kAdagrad, "eps", options.eps);
  check_not_negative(kAdagrad, "initial_accumulator_value", options.initial_accumulator_value);
}

// If the step count is on a GPU, waits for the GPU. That is so only for sparse gradients.
double decayed_lr(double lr, const AdagradOptions& options, const at::Tensor& step) {
  return lr / (1 + (static_cast<double>(step.item<float>()) - 1) * options.lr_decay);
}

}  // namespace

Adagrad::Adagrad(NamedTensors parameters, const AdagradOptions& options)
    : Adagrad(std::vector<ParameterGroup<AdagradOptions>>{{std::move(parameters), options}}) {}

Adagrad::Adagrad(std::vector<ParameterGroup<AdagradOptions>> groups)
    : Optimizer({.name = kAdagrad}, parameters_of(groups)) {
  for (const auto& group : groups) {
    check(group.options);
    options_.push_back(group.options);
  }
}

AdagradOptions Adagrad::options(size_t group) const {
  check_group(group);
  auto options = options_[group];
  options.lr = lr(group);
  return options;
}

std::vector<Optimizer::StateKind> Adagrad::state_kinds(size_t group) const {
  return {{"sum", options_[group].initial_accumulator_value}};
}

void Adagrad::update_fused(Batch& batch, const KernelScale& scale) {
  const auto& o = options_[batch.group];
  at::_fused_adagrad_(batch.parameters, batch.gradients, batch.states[0], batch.steps, batch.lr, o.lr_decay,
                      o.weight_decay, o.eps, o.maximize, scale.scale, scale.found_inf);
}

void Adagrad::update_foreach(Batch& batch) {
  const auto& o = options_[batch.group];
  auto gradients = batch.gradients;
  if (o.maximize) gradients = at::_foreach_neg(gradients);
  if (o.weight_decay != 0) gradients = at::_foreach_add(gradients, batch.parameters, o.weight_decay);
  at::_foreach_addcmul_(batch.states[0], gradients, gradients);
  auto denominators = at::_foreach_sqrt(batch.states[0]);
  at::_foreach_add_(denominators, o.eps);
  std::vector<at::Scalar> factors;
  for (const auto& step : batch.steps) factors.emplace_back(-decayed_lr(batch.lr, o, step));
  at::_foreach_addcdiv_(batch.parameters, gradients, denominators, factors);
}

void Adagrad::update_sparse(Batch& batch) {
  const auto& o = options_[batch.group];
  for (size_t i = 0; i < batch.parameters.size(); ++i) {
    const auto gradient = batch.gradients[i].coalesce();  // each row must appear once, because gradients are squared
    const auto indices = gradient._indices(), values = gradient._values();
    const auto& sum = batch.states[0][i];
    const auto like_gradient = [&](const at::Tensor& new_values) {
      return at::sparse_coo_tensor(indices, new_values, gradient.sizes());
    };
    sum.add_(like_gradient(values.square()));
    const auto denominators = sum.sparse_mask(gradient)._values().sqrt_().add_(o.eps);
    const double factor = decayed_lr(batch.lr, o, batch.steps[i]);
    batch.parameters[i].add_(like_gradient(values.div(denominators)), o.maximize ? factor : -factor);
  }
}

std::string Adagrad::why_not_sparse(size_t group) const {
  if (options_[group].weight_decay == 0) return "";
  return "such gradients are taken without weight_decay";
}

OptionMap Adagrad::options_of(size_t group) const {
  const auto& o = options_[group];
  return {{"lr_decay", o.lr_decay},
          {"weight_decay", o.weight_decay},
          {"eps", o.eps},
          {"initial_accumulator_value", o.initial_accumulator_value},
          {"maximize", o.maximize}};
}

void Adagrad::set_options(size_t group, const OptionMap& map) {
  auto options = options_[group];
  const OptionReader reader(kAdagrad, map);
  reader.read("lr_decay", options.lr_decay);
  reader.read("weight_decay", options.weight_decay);
  reader.read("eps", options.eps);
  reader.read("initial_accumulator_value", options.initial_accumulator_value);
  reader.read("maximize", options.maximize);
  check(options);
  options_[group] = options;
}

}  // namespace yoke::train
