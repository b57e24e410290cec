// yoke/train/optim/rmsprop.h -- RMSprop: steps divided by a running root mean square of the gradients.
#pragma once

#include <vector>

#include "yoke/train/optim/optimizer.h"

namespace yoke::train {

struct RMSpropOptions {
  double lr = 1e-2;     ///< Initial learning rate; step(lr) and set_lr() change it.
  double alpha = 0.99;  ///< Decay of the running means.
  double eps = 1e-8;
  double weight_decay = 0;  ///< Added to the gradient.
  double momentum = 0;
  bool centered = false;  ///< If true, divides by an estimate of the gradients' standard deviation.
  bool maximize = false;
};

/// Equivalent to torch.optim.RMSprop. Supports only dense gradients. libtorch has no fused kernel for it.
///
/// State   "square_avg.NAME", "step.NAME"; with momentum also "momentum_buffer.NAME", if centered also "grad_avg.NAME".
/// Source  torch/optim/rmsprop.py; Tieleman and Hinton, "Lecture 6.5: rmsprop", 2012; Graves, "Generating Sequences
///         With Recurrent Neural Networks", 2013 (centered).
class RMSprop : public OptimizerWith<RMSpropOptions> {
 public:
  template <HasParameters M>
  explicit RMSprop(const M& model, const RMSpropOptions& options = {})
      : RMSprop(train::parameters_of(model), options) {}
  explicit RMSprop(NamedTensors parameters, const RMSpropOptions& options = {});
  explicit RMSprop(std::vector<ParameterGroup<RMSpropOptions>> groups);

 private:
  std::vector<StateKind> state_kinds(size_t group) const override;
  void update_foreach(Batch& batch) override;
};

extern template class OptimizerWith<RMSpropOptions>;

}  // namespace yoke::train
