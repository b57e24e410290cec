#include "yoke/train/optim/rmsprop.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_sqrt.h>

#include "yoke/train/optim/detail/options.h"

namespace yoke::train {
namespace {

constexpr const char* kRMSprop = "RMSprop";

void check(const RMSpropOptions& options) {
  check_not_negative(kRMSprop, "alpha", options.alpha);
  check_not_negative(kRMSprop, "eps", options.eps);
  check_not_negative(kRMSprop, "weight_decay", options.weight_decay);
  check_not_negative(kRMSprop, "momentum", options.momentum);
}

}  // namespace

RMSprop::RMSprop(NamedTensors parameters, const RMSpropOptions& options)
    : RMSprop(std::vector<ParameterGroup<RMSpropOptions>>{{std::move(parameters), options}}) {}

RMSprop::RMSprop(std::vector<ParameterGroup<RMSpropOptions>> groups)
    : Optimizer({.name = kRMSprop, .is_fused = false}, parameters_of(groups)) {
  for (const auto& group : groups) {
    check(group.options);
    options_.push_back(group.options);
  }
}

RMSpropOptions RMSprop::options(size_t group) const {
  check_group(group);
  auto options = options_[group];
  options.lr = lr(group);
  return options;
}

std::vector<Optimizer::StateKind> RMSprop::state_kinds(size_t group) const {
  std::vector<StateKind> kinds{{"square_avg"}};
  if (options_[group].centered) kinds.push_back({"grad_avg"});
  if (options_[group].momentum > 0) kinds.push_back({"momentum_buffer"});
  return kinds;
}

void RMSprop::update_foreach(Batch& batch) {
  const auto& o = options_[batch.group];
  const auto &squares = batch.states[0], &means = batch.states[1], &buffers = batch.states[o.centered ? 2 : 1];
  auto gradients = batch.gradients;
  if (o.maximize) gradients = at::_foreach_neg(gradients);
  if (o.weight_decay != 0) gradients = at::_foreach_add(gradients, batch.parameters, o.weight_decay);
  at::_foreach_mul_(squares, o.alpha);
  at::_foreach_addcmul_(squares, gradients, gradients, 1 - o.alpha);

  std::vector<at::Tensor> denominators;
  if (o.centered) {
    at::_foreach_lerp_(means, gradients, 1 - o.alpha);
    denominators = at::_foreach_addcmul(squares, means, means, -1);
    at::_foreach_sqrt_(denominators);
  } else {
    denominators = at::_foreach_sqrt(squares);
  }
  at::_foreach_add_(denominators, o.eps);

  if (o.momentum > 0) {
    at::_foreach_mul_(buffers, o.momentum);
    at::_foreach_addcdiv_(buffers, gradients, denominators);
    at::_foreach_add_(batch.parameters, buffers, -batch.lr);
  } else {
    at::_foreach_addcdiv_(batch.parameters, gradients, denominators, -batch.lr);
  }
}

OptionMap RMSprop::options_of(size_t group) const {
  const auto& o = options_[group];
  return {{"alpha", o.alpha},       {"eps", o.eps},           {"weight_decay", o.weight_decay},
          {"momentum", o.momentum}, {"centered", o.centered}, {"maximize", o.maximize}};
}

void RMSprop::set_options(size_t group, const OptionMap& map) {
  auto options = options_[group];
  const OptionReader reader(kRMSprop, map);
  reader.read("alpha", options.alpha);
  reader.read("eps", options.eps);
  reader.read("weight_decay", options.weight_decay);
  reader.read("momentum", options.momentum);
  reader.read("centered", options.centered);
  reader.read("maximize", options.maximize);
  check(options);
  options_[group] = options;
}

}  // namespace yoke::train
