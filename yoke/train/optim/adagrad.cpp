#include "yoke/train/optim/adagrad.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/sparse_coo_tensor.h>

#include "yoke/train/optim/detail/options.h"

namespace yoke::train {
namespace {

// If the step count is on a GPU, waits for the GPU. That is so only for sparse gradients.
double decayed_lr(double lr, const AdagradOptions& options, const at::Tensor& step) {
  return lr / (1 + (static_cast<double>(step.item<float>()) - 1) * options.lr_decay);
}

}  // namespace

Adagrad::Adagrad(NamedTensors parameters, const AdagradOptions& options)
    : Adagrad(std::vector<ParameterGroup<AdagradOptions>>{{std::move(parameters), options}}) {}

Adagrad::Adagrad(std::vector<ParameterGroup<AdagradOptions>> groups)
    : OptimizerWith({.name = "Adagrad"}, groups,
                    {{"lr_decay", &AdagradOptions::lr_decay, check_not_negative},
                     {"weight_decay", &AdagradOptions::weight_decay, check_not_negative},
                     {"eps", &AdagradOptions::eps, check_not_negative},
                     {"initial_accumulator_value", &AdagradOptions::initial_accumulator_value, check_not_negative},
                     {"maximize", &AdagradOptions::maximize}}) {}

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
  const auto gradients = decayed_gradients(batch);
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

template class OptimizerWith<AdagradOptions>;

}  // namespace yoke::train
