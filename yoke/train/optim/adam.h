// yoke/train/optim/adam.h -- Adam and AdamW in one pass over the parameters.
#pragma once

#include <vector>

#include "yoke/train/optim/optimizer.h"

namespace yoke::train {

struct AdamOptions {
  double lr = 1e-3;  ///< Initial learning rate; step(lr) and set_lr() change it.
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  ///< Added to the gradient.
  bool amsgrad = false;     ///< Divides by the largest second moment so far.
  bool maximize = false;
};

struct AdamWOptions {
  double lr = 1e-3;  ///< Initial learning rate; step(lr) and set_lr() change it.
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< Shrinks parameters by lr * weight_decay per step, independent of gradients.
  bool amsgrad = false;        ///< Divides by the largest second moment so far.
  bool maximize = false;
};

/// The common base of Adam and AdamW. State: "exp_avg.NAME", "exp_avg_sq.NAME", "step.NAME"; with amsgrad also
/// "max_exp_avg_sq.NAME".
class AdamBase : public OptimizerWith<AdamWOptions> {
 protected:
  AdamBase(const char* name, const std::vector<ParameterGroup<AdamWOptions>>& groups, bool is_decoupled);

 private:
  std::vector<StateKind> state_kinds(size_t group) const override;
  void update_fused(Batch& batch, const KernelScale& scale) override;
  void update_foreach(Batch& batch) override;
  OptionMap options_of(size_t group) const override;
  void set_options(size_t group, const OptionMap& options) override;

  bool is_decoupled_;
};

/// Does what torch.optim.Adam does; weight decay is added to the gradient. Dense gradients only.
/// Source  torch/optim/adam.py; Kingma and Ba, "Adam", ICLR 2015; Reddi et al., "On the Convergence of Adam and
///         Beyond", ICLR 2018 (amsgrad).
class Adam : public AdamBase {
 public:
  template <HasParameters M>
  explicit Adam(const M& model, const AdamOptions& options = {}) : Adam(train::parameters_of(model), options) {}
  explicit Adam(NamedTensors parameters, const AdamOptions& options = {});
  explicit Adam(const std::vector<ParameterGroup<AdamOptions>>& groups);

  /// The options of a group, with the current learning rate.
  AdamOptions options(size_t group = 0) const;
};

/// Does what torch.optim.AdamW does; weight decay is separate from the gradient. Dense gradients only.
/// Errors  as Adam.
/// Source  torch/optim/adamw.py; Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
class AdamW : public AdamBase {
 public:
  template <HasParameters M>
  explicit AdamW(const M& model, const AdamWOptions& options = {}) : AdamW(train::parameters_of(model), options) {}
  explicit AdamW(NamedTensors parameters, const AdamWOptions& options = {});
  explicit AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups);
};

extern template class OptimizerWith<AdamWOptions>;

}  // namespace yoke::train
