// yoke/train/optim/nadam.h -- NAdam: Adam with Nesterov's momentum.
#pragma once

#include <vector>

#include "yoke/train/optim/optimizer.h"

namespace yoke::train {

struct NAdamOptions {
  double lr = 2e-3;  ///< Initial learning rate; step(lr) and set_lr() change it.
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;              ///< Added to the gradient, unless it is decoupled.
  double momentum_decay = 4e-3;         ///< How fast the momentum of step t rises to beta1.
  bool decoupled_weight_decay = false;  ///< If true, parameters shrink by lr * weight_decay per step, as in AdamW.
  bool maximize = false;
};

/// Equivalent to torch.optim.NAdam. Supports only dense gradients. libtorch has no fused kernel for it.
///
/// State   "exp_avg.NAME", "exp_avg_sq.NAME"; "mu_product.NAME", one float, the product of all momenta so far;
///         "step.NAME".
/// Source  torch/optim/nadam.py; Dozat, "Incorporating Nesterov Momentum into Adam", ICLR 2016 workshop.
class NAdam : public OptimizerWith<NAdamOptions> {
 public:
  template <HasParameters M>
  explicit NAdam(const M& model, const NAdamOptions& options = {}) : NAdam(train::parameters_of(model), options) {}
  explicit NAdam(NamedTensors parameters, const NAdamOptions& options = {});
  explicit NAdam(std::vector<ParameterGroup<NAdamOptions>> groups);

 private:
  std::vector<StateKind> state_kinds(size_t group) const override;
  void update_foreach(Batch& batch) override;
};

extern template class OptimizerWith<NAdamOptions>;

}  // namespace yoke::train
