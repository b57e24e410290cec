// yoke/train/optim/adam.h -- Adam and AdamW in one pass over the parameters.
#pragma once

#include <vector>

#include "yoke/train/optim/optimizer.h"

namespace yoke::train {

struct AdamOptions {
  double lr = 1e-3;  ///< Or each step is given its own: step(lr).
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  ///< Added to the gradient.
  bool amsgrad = false;     ///< Divides by the largest second moment so far.
  bool maximize = false;
};

struct AdamWOptions {
  double lr = 1e-3;  ///< Or each step is given its own: step(lr).
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< Shrinks the parameters by lr * weight_decay a step, whatever their gradients.
  bool amsgrad = false;        ///< Divides by the largest second moment so far.
  bool maximize = false;
};

/// What both share. State: "exp_avg.NAME", "exp_avg_sq.NAME", with amsgrad "max_exp_avg_sq.NAME"; "step.NAME".
class AdamBase : public Optimizer {
 protected:
  AdamBase(const char* name, std::vector<ParameterGroup<AdamWOptions>> groups, bool is_decoupled);
  AdamWOptions current(size_t group) const;

 private:
  std::vector<StateKind> state_kinds(size_t group) const override;
  void update_fused(Batch& batch, const KernelScale& scale) override;
  void update_foreach(Batch& batch) override;
  OptionMap options_of(size_t group) const override;
  void set_options(size_t group, const OptionMap& options) override;

  const char* name_;
  bool is_decoupled_;
  std::vector<AdamWOptions> options_;  ///< By group; lr is the base class's.
};

/// torch.optim.Adam; weight decay is part of the gradient. Dense gradients only.
/// Errors  kInvalidArgument: options outside their ranges, a name twice, a parameter undefined or of another dtype.
/// Source  torch/optim/adam.py; Kingma and Ba, "Adam", ICLR 2015; Reddi et al., "On the Convergence of Adam and
///         Beyond", ICLR 2018 (amsgrad).
class Adam : public AdamBase {
 public:
  template <HasParameters M>
  explicit Adam(const M& model, const AdamOptions& options = {}) : Adam(train::parameters_of(model), options) {}
  explicit Adam(NamedTensors parameters, const AdamOptions& options = {});
  explicit Adam(const std::vector<ParameterGroup<AdamOptions>>& groups);

  /// With the learning rate as it is now.
  AdamOptions options(size_t group = 0) const;
};

/// torch.optim.AdamW; weight decay beside the gradient. Dense gradients only.
/// Errors  as Adam.
/// Source  torch/optim/adamw.py; Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
class AdamW : public AdamBase {
 public:
  template <HasParameters M>
  explicit AdamW(const M& model, const AdamWOptions& options = {}) : AdamW(train::parameters_of(model), options) {}
  explicit AdamW(NamedTensors parameters, const AdamWOptions& options = {});
  explicit AdamW(std::vector<ParameterGroup<AdamWOptions>> groups);

  /// With the learning rate as it is now.
  AdamWOptions options(size_t group = 0) const;
};

}  // namespace yoke::train
