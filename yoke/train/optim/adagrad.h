// yoke/train/optim/adagrad.h -- Adagrad in one pass over the parameters.
#pragma once

#include <vector>

#include "yoke/train/optim/optimizer.h"

namespace yoke::train {

struct AdagradOptions {
  double lr = 1e-2;  ///< Initial learning rate; step(lr) and set_lr() change it.
  double lr_decay = 0;
  double weight_decay = 0;
  double eps = 1e-10;
  double initial_accumulator_value = 0;
  bool maximize = false;
};

/// Does what torch.optim.Adagrad does.
///
/// State   "sum.NAME", "step.NAME".
/// Sparse  gradients are supported without weight decay. Rows of an embedding that were not used stay unchanged.
/// Source  torch/optim/adagrad.py; Duchi et al., "Adaptive Subgradient Methods", JMLR 12 (2011).
class Adagrad : public OptimizerWith<AdagradOptions> {
 public:
  template <HasParameters M>
  explicit Adagrad(const M& model, const AdagradOptions& options = {})
      : Adagrad(train::parameters_of(model), options) {}
  explicit Adagrad(NamedTensors parameters, const AdagradOptions& options = {});
  explicit Adagrad(std::vector<ParameterGroup<AdagradOptions>> groups);

 private:
  std::vector<StateKind> state_kinds(size_t group) const override;
  void update_fused(Batch& batch, const KernelScale& scale) override;
  void update_foreach(Batch& batch) override;
  void update_sparse(Batch& batch) override;
  std::string why_not_sparse(size_t group) const override;
};

extern template class OptimizerWith<AdagradOptions>;

}  // namespace yoke::train
