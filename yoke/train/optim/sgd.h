// yoke/train/optim/sgd.h -- stochastic gradient descent in one pass over the parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace yoke::train {

struct SgdOptions {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  ///< Needs a momentum, and no dampening.
  bool maximize = false;
};

/// torch.optim.SGD(fused=True) without its learning rate, which each step is given: a schedule is a pure function
/// (one_cycle.h), not another object with state to save. On one machine the parameters equal Python's to the last bit;
/// other CPU models may round differently (whether they have a fused multiply-add).
///
///     Sgd optimizer(model->named_parameters().pairs(), {.momentum = 0.9});
///     optimizer.zero_grad(); loss.backward(); optimizer.step(lr);
///
/// Devices  CPU and CUDA, float dtypes, mixed as you like; one kernel for each (device, dtype).
/// Source   torch/optim/sgd.py; Sutskever et al., "On the importance of initialization and momentum", ICML 2013.
class Sgd {
 public:
  /// Keeps references to the parameters: leaf tensors, dense, each under a name of its own.
  /// Errors  kInvalidArgument: options outside their ranges, a name twice, a parameter undefined or not of a float
  /// dtype.
  Sgd(NamedTensors parameters, const SgdOptions& options);

  /// One update with learning rate `lr`; parameters without a gradient are left alone.
  /// Errors  kInvalidArgument: lr negative or NaN; a gradient that is sparse or does not fit its parameter (named).
  void step(double lr);

  /// For a schedule that moves the momentum too. REQUIRES: zero stays zero and nonzero nonzero once stepping began.
  void set_momentum(double momentum);

  /// Makes all gradients undefined, so that the next backward writes instead of adding.
  void zero_grad();

  /// The momentum buffers under "momentum_buffer.NAME": empty without momentum, or before a parameter's first step.
  /// The tensors are the optimizer's own, not copies: write them out before the next step.
  std::map<std::string, at::Tensor> state_dict() const;

  /// Takes over what state_dict gave, copying into tensors of the parameters' layout and device. All or nothing.
  /// Errors  kInvalidArgument, naming the tensor: an unknown name, another shape or dtype.
  void load_state_dict(const std::map<std::string, at::Tensor>& state);

  const NamedTensors& parameters() const { return parameters_; }
  const SgdOptions& options() const { return options_; }

 private:
  NamedTensors parameters_;
  SgdOptions options_;
  std::vector<at::Tensor> momentum_buffers_;  ///< Beside parameters_; undefined before a parameter's first step.
};

}  // namespace yoke::train
