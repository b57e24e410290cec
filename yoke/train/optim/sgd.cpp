#include "yoke/train/optim/sgd.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_fused_sgd.h>

#include "yoke/base/error.h"
#include "yoke/train/optim/detail/options.h"

namespace yoke::train {
namespace {

constexpr const char* kSgd = "SGD";

void check(const SgdOptions& options) {
  check_not_negative(kSgd, "momentum", options.momentum);
  check_not_negative(kSgd, "weight_decay", options.weight_decay);
  check_finite(kSgd, "dampening", options.dampening);
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "SGD: nesterov needs a momentum above 0 and a dampening of 0, not {} and {}", options.momentum,
                options.dampening);
  }
}

}  // namespace

Sgd::Sgd(NamedTensors parameters, const SgdOptions& options)
    : Sgd(std::vector<ParameterGroup<SgdOptions>>{{std::move(parameters), options}}) {}

Sgd::Sgd(std::vector<ParameterGroup<SgdOptions>> groups)
    // On a CPU, libtorch 2.11's fused SGD for half and bfloat16 changes only the elements after the last whole SIMD
    // vector. (Python updates all elements, because it uses the fused kernel only on request.)
    : Optimizer({.name = kSgd, .has_steps = false, .starts_from_gradient = true, .fuses_half_on_cpu = false},
                parameters_of(groups)) {
  for (const auto& group : groups) {
    check(group.options);
    options_.push_back(group.options);
  }
}

SgdOptions Sgd::options(size_t group) const {
  check_group(group);
  auto options = options_[group];
  options.lr = lr(group);
  return options;
}

void Sgd::set_momentum(double momentum) {
  for (size_t group = 0; group < num_groups(); ++group) set_momentum(group, momentum);
}

void Sgd::set_momentum(size_t group, double momentum) {
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
  auto gradients = batch.gradients;
  if (options.maximize) gradients = at::_foreach_neg(gradients);
  if (options.weight_decay != 0) gradients = at::_foreach_add(gradients, batch.parameters, options.weight_decay);
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

OptionMap Sgd::options_of(size_t group) const {
  const auto& o = options_[group];
  return {{"momentum", o.momentum},
          {"dampening", o.dampening},
          {"weight_decay", o.weight_decay},
          {"nesterov", o.nesterov},
          {"maximize", o.maximize}};
}

void Sgd::set_options(size_t group, const OptionMap& map) {
  auto options = options_[group];
  const OptionReader reader(kSgd, map);
  reader.read("momentum", options.momentum);
  reader.read("dampening", options.dampening);
  reader.read("weight_decay", options.weight_decay);
  reader.read("nesterov", options.nesterov);
  reader.read("maximize", options.maximize);
  check(options);
  options_[group] = options;
}

}  // namespace yoke::train
