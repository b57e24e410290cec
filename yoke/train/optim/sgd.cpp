#include "yoke/train/optim/sgd.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_sgd.h>

#include "yoke/base/error.h"
#include "yoke/train/detail/recording.h"
#include "yoke/train/optim/detail/options.h"

namespace yoke::train {
Sgd::Sgd(NamedTensors parameters, const SgdOptions& options)
    : Sgd(std::vector<ParameterGroup<SgdOptions>>{{std::move(parameters), options}}) {}

Sgd::Sgd(std::vector<ParameterGroup<SgdOptions>> groups)
    // On a CPU, libtorch 2.11's fused SGD for half and bfloat16 changes only the elements after the last whole SIMD
    // vector. (Python updates all elements, because it uses the fused kernel only on request.)
    : OptimizerWith({.name = "SGD",
                     .has_steps = false,
                     .starts_from_gradient = true,
                     .fuses_half_on_cpu = false,
                     .scheduled = "momentum"},
                    groups,
                    {{"momentum", &SgdOptions::momentum, check_not_negative},
                     {"dampening", &SgdOptions::dampening, check_finite},
                     {"weight_decay", &SgdOptions::weight_decay, check_not_negative},
                     {"nesterov", &SgdOptions::nesterov},
                     {"maximize", &SgdOptions::maximize}}) {
  for (const auto& options : options_) check(options);
}

void Sgd::check(const SgdOptions& options) const {
  OptimizerWith::check(options);
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "SGD: nesterov needs a momentum above 0 and a dampening of 0, not {} and {}", options.momentum,
                options.dampening);
  }
}

void Sgd::set_momentum(double momentum) {
  for (size_t group = 0; group < num_groups(); ++group) set_momentum(group, momentum);
}

void Sgd::set_momentum(size_t group, double momentum) {
  detail::refuse_to_record("SGD", "set_momentum(momentum)", "call it before the recorded step");
  auto changed = options(group);
  if ((momentum == 0) != (changed.momentum == 0) && has_stepped(group)) {
    throw Error(ErrorCode::kInvalidArgument,
                "SGD: momentum {} instead of {} after a step: it cannot begin or end then; a very small one can",
                momentum, changed.momentum);
  }
  changed.momentum = momentum;
  check(changed);
  options_[group] = changed;
}

std::vector<Optimizer::StateKind> Sgd::state_kinds(size_t group) const {
  if (options_[group].momentum == 0) return {};
  return {{"momentum_buffer"}};
}

void Sgd::update_fused(Batch& batch, const KernelScale& scale) {
  const auto& options = options_[batch.group];
  at::_fused_sgd_(batch.parameters, batch.gradients, batch.states[0], options.weight_decay, options.momentum, batch.lr,
                  options.dampening, options.nesterov, options.maximize,
                  /*is_first_step=*/batch.is_first_step && options.momentum != 0, scale.scale, scale.found_inf);
}

void Sgd::update_foreach(Batch& batch) {
  const auto& options = options_[batch.group];
  auto gradients = decayed_gradients(batch);
  if (options.momentum != 0) {
    const auto& buffers = batch.states[0];
    if (batch.is_first_step) {
      at::_foreach_copy_(buffers, gradients);
    } else {
      at::_foreach_mul_(buffers, options.momentum);
      at::_foreach_add_(buffers, gradients, 1 - options.dampening);
    }
    gradients = options.nesterov ? at::_foreach_add(gradients, buffers, options.momentum) : buffers;
  }
  at::_foreach_add_(batch.parameters, gradients, -batch.lr);
}

void Sgd::update_sparse(Batch& batch) {
  const double factor = options_[batch.group].maximize ? batch.lr : -batch.lr;
  for (size_t i = 0; i < batch.parameters.size(); ++i) batch.parameters[i].add_(batch.gradients[i], factor);
}

std::string Sgd::why_not_sparse(size_t group) const {
  if (options_[group].momentum == 0 && options_[group].weight_decay == 0) return "";
  return "such gradients are taken without momentum and weight_decay";
}

template class OptimizerWith<SgdOptions>;

}  // namespace yoke::train
