// yoke/train/optim/sgd.h -- stochastic gradient descent in one pass over the parameters.
#pragma once

#include <vector>

#include "yoke/train/optim/optimizer.h"

namespace yoke::train {

struct SgdOptions {
  double lr = 1e-3;  ///< Initial learning rate; step(lr) and set_lr() change it.
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  ///< Requires a momentum and a dampening of 0.
  bool maximize = false;
};

/// Equivalent to torch.optim.SGD.
///
///     Sgd optimizer(model->named_parameters().pairs(), {.momentum = 0.9});
///     optimizer.zero_grad(); loss.backward(); optimizer.step(lr);
///
/// State   "momentum_buffer.NAME": absent without momentum, and before a parameter's first step; "lr", "momentum".
/// Sparse  gradients are supported without momentum and weight decay.
/// Source  torch/optim/sgd.py; Sutskever et al., "On the importance of initialization and momentum", ICML 2013.
class Sgd : public OptimizerWith<SgdOptions> {
 public:
  template <HasParameters M>
  explicit Sgd(const M& model, const SgdOptions& options = {}) : Sgd(train::parameters_of(model), options) {}
  explicit Sgd(NamedTensors parameters, const SgdOptions& options = {});
  explicit Sgd(std::vector<ParameterGroup<SgdOptions>> groups);

  /// Sets the momentum, for schedules that change it as well as the rate.
  /// Errors  kInvalidArgument: the momentum is negative or not finite; it changes from or to zero after the first step,
  ///         which would change the state; or the group does not exist.
  void set_momentum(double momentum);  ///< Sets the momentum of all groups.
  void set_momentum(size_t group, double momentum);

 private:
  void check(const SgdOptions& options) const override;
  std::vector<StateKind> state_kinds(size_t group) const override;
  void update_fused(Batch& batch, const KernelScale& scale) override;
  void update_foreach(Batch& batch) override;
  void update_sparse(Batch& batch) override;
  std::string why_not_sparse(size_t group) const override;
};

extern template class OptimizerWith<SgdOptions>;

}  // namespace yoke::train
