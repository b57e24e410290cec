// yoke/train/optim/optimizer.h -- what all optimizers share: groups, gradients, learning rates, state.
//
//     AdamW optimizer(model, {.weight_decay = 0.01});      // adam.h; sgd.h, adagrad.h, nadam.h, rmsprop.h
//     loss.backward(); optimizer.step(schedule(i)); optimizer.zero_grad();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// What a GradScaler hands to an optimizer: one-element float tensors. Undefined means not used.
struct GradScale {
  at::Tensor scale;      ///< Gradients are divided by it; fused kernels write the quotient back, as Python's do.
  at::Tensor found_inf;  ///< Where it is 1 the step changes nothing, step counts included; otherwise 0.
};

/// Gradients as the next step of an optimizer takes them.
struct StepGradients {
  const NamedTensors& parameters;  ///< Each once; whoever changes gradients in place changes those of all.
  dist::Group* group = nullptr;    ///< Not null: its ranks have different ones of them, and step together.
};

/// What a GradScaler asks of an optimizer: Optimizer is one, and ShardedOptimizer (yoke/train/shard).
class ScalableOptimizer {
 public:
  virtual ~ScalableOptimizer() = default;
  virtual void step() = 0;
  virtual void step(const GradScale& scale) = 0;

  /// Before the step, which then takes what they have become. Collective where the step is.
  virtual StepGradients step_gradients() = 0;
};

/// Parameters with options of their own: no weight decay for biases, another rate for the head.
template <class Options>
struct ParameterGroup {
  NamedTensors parameters;
  Options options;
};

/// Those for which `is_first(name, shape)`, and the others, in their order. `shape` is the whole parameter's, also
/// where this rank has a part of it: `split(parameters_of(net), [](auto&, auto shape) { return shape.size() > 1; })`.
std::pair<NamedTensors, NamedTensors> split(
    const NamedTensors& parameters,
    const std::function<bool(const std::string& name, at::IntArrayRef shape)>& is_first);

/// Options of a group under Python's names: "lr", "betas", "amsgrad" and so on (see python_state.h).
using OptionValue = std::variant<bool, double, std::vector<double>>;
using OptionMap = std::map<std::string, OptionValue>;

/// An optimizer over groups of parameters. Each step is one fused kernel for each (group, device, dtype), or some
/// foreach operations where libtorch has no such kernel, and the lists that they take are built once, not once a step.
///
/// Parameters  leaf tensors of float, double, half or bfloat16, each under a name of its own over all groups.
///             A tied one counts once, under its first name (see distinct); in two groups it is an error.
///             References are kept, and what they lead to keeps its shape, dtype, device and strides; a parameter
///             without a gradient is left alone, and has no state until its first one.
/// Slices      all updates are elementwise: a 1-D view of a parameter (with its gradient) steps as it does within the
///             whole. On a CPU the last elements of a slice that is no multiple of 64 bytes may round differently.
/// Devices     fused kernels on CPU and CUDA. Elsewhere, for parameters with gaps in their memory (column slices), and
///             for NAdam and RMSprop everywhere, the same formulas through foreach operations.
/// Sync        a step never waits for the device, with two exceptions while GradScale::found_inf is used on one: the
///             first step of an SGD momentum, and steps that are not fused (sparse gradients included).
/// Source      torch/optim/*.py: on one machine parameters and state equal Python's with fused=True to the last bit,
/// and
///             those of NAdam and RMSprop with foreach=True.
class Optimizer : public ScalableOptimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates with each group's own learning rate.
  /// Errors  kInvalidArgument: a gradient of another dtype, device or shape than its parameter, or sparse where the
  ///         optimizer cannot take it (named); a parameter that has been moved, converted or laid out otherwise than
  ///         its state (named). Nothing has changed then.
  void step() final;

  /// Sets every group's learning rate first: schedules are pure functions (schedule.h), so optimizer.step(lr(i)).
  void step(double lr);

  /// For GradScaler: unscales and skips inside the kernels, without asking the device.
  void step(const GradScale& scale) final;
  StepGradients step_gradients() final;

  /// Makes all gradients undefined, so that the next backward writes instead of adding.
  void zero_grad();

  size_t num_groups() const { return lrs_.size(); }
  double lr(size_t group = 0) const;

  /// Errors  kInvalidArgument: negative or not finite; a group that is not there.
  void set_lr(double lr);  ///< Of all groups.
  void set_lr(size_t group, double lr);

  /// Of all groups, in order.
  const NamedTensors& parameters() const { return parameters_; }

  /// What states named "KIND.NAME" are of, for a TrainState.
  NamedTensors state_layout() const { return parameters_; }

  /// What continues this optimizer, by parameter: "exp_avg.NAME" of the parameter's shape and dtype, "step.NAME" one
  /// float. The tensors are the optimizer's own, not copies: write them out before the next step. Learning rates and
  /// other options are the program's, not the state's.
  TensorMap state_dict() const;

  /// Takes over what state_dict gave, copying into tensors of the parameters' layout and device. All or nothing: a
  /// parameter that the state lacks starts anew.
  /// Errors  kInvalidArgument, naming the tensor: an unknown name, another shape or dtype, a part of a parameter's
  ///         state missing.
  void load_state_dict(const TensorMap& state);

 protected:
  /// A tensor of each parameter's state, and what it starts from.
  struct StateKind {
    std::string name;
    double initial = 0;
    bool is_number = false;  ///< One float, kept where the step count is, not the parameter's shape. Such come last.
  };

  struct Traits {
    std::string name;                   ///< For messages.
    bool has_steps = true;              ///< Counts the steps of each parameter, as "step.NAME".
    bool starts_from_gradient = false;  ///< The first step differs from the others (SGD's momentum).
    bool is_fused = true;               ///< False: libtorch has no kernel, and update_foreach makes every step.
    bool fuses_half_on_cpu = true;      ///< False: the kernel for half and bfloat16 is wrong there.
  };

  /// GradScale as kernels take it, on their device.
  struct KernelScale {
    std::optional<at::Tensor> scale, found_inf;
  };

  /// One call of a kernel: parameters of one group, device and dtype. Lists are beside each other.
  struct Batch {
    size_t group = 0;
    bool is_first_step = false;
    double lr = 0;
    std::vector<at::Tensor> parameters, gradients;
    std::vector<std::vector<at::Tensor>> states;  ///< By StateKind; empty lists beyond the group's kinds.
    std::vector<at::Tensor> steps;                ///< Those of the step that is taken: 1 in the first.

    std::vector<size_t> slots;  // the base class's
    bool is_fused = true, is_sparse = false;
  };

  Optimizer(Traits traits, std::vector<std::pair<NamedTensors, double>> groups_and_lrs);

  template <class Options>
  static std::vector<std::pair<NamedTensors, double>> parameters_of(
      const std::vector<ParameterGroup<Options>>& groups) {
    std::vector<std::pair<NamedTensors, double>> result;
    for (const auto& group : groups) result.emplace_back(group.parameters, group.options.lr);
    return result;
  }

  void check_group(size_t group) const;
  bool has_stepped(size_t group) const;  ///< Or its state was loaded.

 private:
  friend struct OptimizerOptions;  // python_state.cpp

  /// For the options of a group as they are now; at most three.
  virtual std::vector<StateKind> state_kinds(size_t group) const = 0;
  virtual void update_fused(Batch&, const KernelScale&) {}  ///< For those whose Traits say is_fused.

  /// Both run below autograd. Gradients have been unscaled; the lists may be changed in place, the gradients not.
  virtual void update_foreach(Batch& batch) = 0;
  virtual void update_sparse(Batch&) {}

  /// Why this group takes no sparse gradients; empty when it does.
  virtual std::string why_not_sparse(size_t) const { return "only dense ones are taken"; }

  /// Without "lr". set_options checks before it changes anything; unknown names are left out of consideration.
  virtual OptionMap options_of(size_t group) const = 0;
  virtual void set_options(size_t group, const OptionMap& options) = 0;

  enum class GradientKind : uint8_t { kNone, kDense, kSparse };
  struct Slot {
    at::Tensor parameter, step;
    std::vector<at::Tensor> states;
    size_t group = 0;
    bool is_fused = true, has_state = false;
    GradientKind gradient = GradientKind::kNone;
  };

  void apply(GradScale scale);
  void plan();
  void start_state(Slot& slot) const;
  static at::Tensor new_state(const Slot& slot, const StateKind& kind);
  static at::Tensor new_number(const Slot& slot, double initial);
  at::Tensor checked_gradient(size_t slot) const;
  void run(Batch& batch, const GradScale& scale);

  Traits traits_;
  NamedTensors parameters_;
  std::vector<Slot> slots_;  ///< Beside parameters_.
  std::vector<double> lrs_;  ///< By group.
  std::vector<Batch> batches_;
  bool is_planned_ = false;  ///< batches_ fit the gradients that were there at the last step.
};

}  // namespace yoke::train
