#include "yoke/train/optim/rmsprop.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>

#include "yoke/train/optim/detail/options.h"

namespace yoke::train {
RMSprop::RMSprop(NamedTensors parameters, const RMSpropOptions& options)
    : RMSprop(std::vector<ParameterGroup<RMSpropOptions>>{{std::move(parameters), options}}) {}

RMSprop::RMSprop(std::vector<ParameterGroup<RMSpropOptions>> groups)
    : OptimizerWith({.name = "RMSprop", .is_fused = false}, groups,
                    {{"alpha", &RMSpropOptions::alpha, check_not_negative},
                     {"eps", &RMSpropOptions::eps, check_not_negative},
                     {"weight_decay", &RMSpropOptions::weight_decay, check_not_negative},
                     {"momentum", &RMSpropOptions::momentum, check_not_negative},
                     {"centered", &RMSpropOptions::centered},
                     {"maximize", &RMSpropOptions::maximize}}) {}

std::vector<Optimizer::StateKind> RMSprop::state_kinds(size_t group) const {
  std::vector<StateKind> kinds{{"square_avg"}};
  if (options_[group].centered) kinds.push_back({"grad_avg"});
  if (options_[group].momentum > 0) kinds.push_back({"momentum_buffer"});
  return kinds;
}

void RMSprop::update_foreach(Batch& batch) {
  const auto& o = options_[batch.group];
  const auto &squares = batch.states[0], &means = batch.states[1], &buffers = batch.states[o.centered ? 2 : 1];
  const auto gradients = decayed_gradients(batch);
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

template class OptimizerWith<RMSpropOptions>;

}  // namespace yoke::train
