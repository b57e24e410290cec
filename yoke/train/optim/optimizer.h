// yoke/train/optim/optimizer.h -- the base of all optimizers: groups, gradients, learning rates, state.
//
//     AdamW optimizer(model, {.weight_decay = 0.01});      // adam.h; sgd.h, adagrad.h, nadam.h, rmsprop.h
//     loss.backward(); optimizer.step(schedule(i)); optimizer.zero_grad();
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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

/// Tensors that a GradScaler passes to an optimizer, each a float with one element. An undefined tensor is not used.
struct GradScale {
  at::Tensor scale;      ///< Divides the gradients. Fused kernels write the quotients to the gradients, as in Python.
  at::Tensor found_inf;  ///< If it is 1, the step changes nothing, not even step counts; otherwise it is 0.
};

/// The gradients that the next step of an optimizer will use.
struct StepGradients {
  const NamedTensors& parameters;  ///< Contains each parameter once. The gradients may be changed in place.
  dist::Group* group = nullptr;    ///< If set, its ranks hold different parameters and step together.
};

/// The interface that GradScaler needs. Optimizer and ShardedOptimizer (yoke/train/shard) implement it.
class ScalableOptimizer {
 public:
  virtual ~ScalableOptimizer() = default;
  virtual void step() = 0;
  virtual void step(const GradScale& scale) = 0;
  virtual void set_lr(double lr) = 0;  ///< Sets the rate of all groups.

  /// Called before step(). The caller may change these gradients in place, and step() uses the changed values.
  /// Collective if step() is.
  virtual StepGradients step_gradients() = 0;
};

/// Parameters with their own options, such as no weight decay for biases or a different rate for the head.
template <class Options>
struct ParameterGroup {
  NamedTensors parameters;
  Options options;
};

/// Returns the parameters for which `is_first(name, shape)` is true, and the remaining ones, in the original order.
/// `shape` is that of the whole parameter, even if this rank has only a part of it. Example:
/// `split(parameters_of(net), [](auto&, auto shape) { return shape.size() > 1; })`.
std::pair<NamedTensors, NamedTensors> split(
    const NamedTensors& parameters,
    const std::function<bool(const std::string& name, at::IntArrayRef shape)>& is_first);

/// Options of a group under Python's names: "lr", "betas", "amsgrad" and so on (see python_state.h).
using OptionValue = std::variant<bool, double, std::vector<double>>;
using OptionMap = std::map<std::string, OptionValue>;

/// Some of the elements that an optimizer updates, few enough to stay in a processor's caches.
struct StepPiece {
  struct Part {
    size_t parameter = 0;         ///< Its index in Optimizer::parameters().
    int64_t first = 0, size = 0;  ///< Elements of the flattened parameter. `first` is a multiple of 64 bytes.
    at::Tensor gradient;          ///< [size]: what StepInPieces::before writes.
  };
  std::vector<Part> parts;
};

/// How an optimizer steps piece by piece. Lanes are independent of each other, and run on the threads of this process.
struct StepInPieces {
  std::vector<std::vector<StepPiece>> lanes;              ///< Together they have each element at most once.
  std::function<void(size_t lane, size_t piece)> before;  ///< Called before a piece is updated.
  std::function<void(size_t lane, size_t piece)> after;
};

/// An optimizer over groups of parameters. Each step is one fused kernel for each (group, device, dtype), or some
/// foreach operations if libtorch has no such kernel. The tensor lists for these calls are built once and reused.
///
/// Parameters  leaf tensors of float, double, half or bfloat16, with names that are unique over all groups. A tied
///             parameter counts once, under its first name (see distinct); in two groups it is an error. The optimizer
///             refers to the parameters, whose shape, dtype, device and strides must not change. A parameter without a
///             gradient is not changed, and has no state until its first gradient.
/// Slices      all updates are elementwise, so stepping a 1-D view of a parameter (with a view of its gradient) has the
///             same result as stepping the whole parameter. On a CPU, the last elements of a slice may round
///             differently if its size is not a multiple of 64 bytes.
/// Errors      of all constructors: kInvalidArgument: an option is out of range, a name appears twice, a parameter is
///             undefined or has a dtype other than these.
/// Devices     fused kernels on CPU and CUDA. On other devices, for parameters with gaps in their memory (column
///             slices), and always for NAdam and RMSprop, foreach operations compute the same formulas.
/// Sync        a step never waits for the device, with two exceptions if GradScale::found_inf is used: the first step
///             of an SGD momentum, and steps that are not fused (including sparse gradients).
/// Source      torch/optim/*.py: on the same machine, parameters and state equal Python's with fused=True to the last
///             bit; for NAdam and RMSprop, those with foreach=True.
class Optimizer : public ScalableOptimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates the parameters with each group's learning rate.
  /// Errors  kInvalidArgument, naming the parameter: its gradient has a different dtype, device or shape, or is sparse
  ///         and the optimizer does not support that; or the parameter was moved, converted or changed in layout since
  ///         its state was made. Then nothing has changed.
  void step() final;

  /// Sets every group's learning rate, then updates. Schedules are pure functions (schedule.h): optimizer.step(lr(i)).
  void step(double lr);

  /// For GradScaler: the kernels unscale the gradients, or skip the step, without waiting for the device.
  void step(const GradScale& scale) final;
  StepGradients step_gradients() final;

  /// For ShardedOptimizer: whether step_in_pieces() can be called. Only fused kernels of the CPU update pieces.
  bool can_step_in_pieces() const;
  /// Does what step() does, to the last bit. Parameters without a gradient are left out; the gradients of others say
  /// nothing but that they are there. `pieces` may change after replan() alone.
  void step_in_pieces(const StepInPieces& pieces);
  void replan() { is_planned_ = false; }

  /// Makes all gradients undefined, so that the next backward writes instead of adding.
  void zero_grad();

  size_t num_groups() const { return lrs_.size(); }
  double lr(size_t group = 0) const;

  /// A step with a negative rate ascends: PyTorch allows it too, in `param_groups`, but not when an optimizer is made.
  /// Errors kInvalidArgument: the rate is not finite, or the group does not exist.
  void set_lr(double lr) final;  ///< Sets the rate of all groups.
  void set_lr(size_t group, double lr);

  /// The parameters of all groups, in order.
  const NamedTensors& parameters() const { return parameters_; }

  /// The tensors to which states named "KIND.NAME" belong, for a TrainState.
  NamedTensors state_layout() const { return parameters_; }

  /// The state by parameter: "exp_avg.NAME" with the parameter's shape and dtype, and "step.NAME", one float. These
  /// tensors are the optimizer's own, not copies: save them before the next step. "lr" has the present rate of each
  /// group as a double, and "momentum" that of an Sgd. Other options are not part of the state; the program sets them.
  TensorMap state_dict() const;

  /// Loads a result of state_dict(), copied to the layout and device of the parameters. On an error nothing changes. A
  /// parameter that the state lacks starts without state. As in PyTorch, the rates of the state replace those that the
  /// optimizer was made with; a state without them leaves them, and so does one of another number of groups whose rates
  /// are not all equal, with a warning. The momentum of an Sgd likewise; with Nesterov's, a 0 is not loaded.
  /// Errors  kInvalidArgument, naming the tensor: unknown name, other shape or dtype, or a missing part of a state.
  void load_state_dict(const TensorMap& state);

 protected:
  /// One kind of tensor in the state of each parameter, and its initial value.
  struct StateKind {
    std::string name;
    double initial = 0;
    bool is_number = false;  ///< One float on the step count's device. In a list of kinds, numbers come last.
  };

  struct Traits {
    std::string name;                   ///< Used in messages.
    bool has_steps = true;              ///< Steps of each parameter are counted, as "step.NAME".
    bool starts_from_gradient = false;  ///< The first step differs from the others (SGD's momentum).
    bool is_fused = true;               ///< False if libtorch has no kernel; then update_foreach makes every step.
    bool fuses_half_on_cpu = true;      ///< False if the CPU kernel for half and bfloat16 has a bug.
    std::string scheduled = "";         ///< A number besides lr that programs change while they train, if there is one.
  };

  /// GradScale on the device of a kernel, in the form of the kernel's arguments.
  struct KernelScale {
    std::optional<at::Tensor> scale, found_inf;
  };

  /// One call of a kernel: parameters of one group, device and dtype. All lists have the same order.
  struct Batch {
    size_t group = 0;
    bool is_first_step = false;
    double lr = 0;
    std::vector<at::Tensor> parameters, gradients;
    std::vector<std::vector<at::Tensor>> states;  ///< Indexed by StateKind; lists beyond the group's kinds are empty.
    std::vector<at::Tensor> steps;                ///< Number of the present step, from 1.

    std::vector<size_t> slots;  // used by the base class
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

  const std::string& name() const { return traits_.name; }
  void check_group(size_t group) const;
  bool has_stepped(size_t group) const;  ///< Also true if the group's state was loaded.

 private:
  friend struct OptimizerOptions;  // python_state.cpp

  /// Returns the kinds of state that the group's current options need; at most three.
  virtual std::vector<StateKind> state_kinds(size_t group) const = 0;
  virtual void update_fused(Batch&, const KernelScale&) {}  ///< Called only for optimizers with Traits::is_fused.

  /// update_fused and update_foreach run below autograd. Gradients are already unscaled. These functions may change
  /// the tensors in the lists in place, except the gradients.
  virtual void update_foreach(Batch& batch) = 0;
  virtual void update_sparse(Batch&) {}

  /// Returns why this group does not support sparse gradients; empty if it does.
  virtual std::string why_not_sparse(size_t) const { return "only dense ones are taken"; }

  /// The options without "lr". set_options checks all values before it changes anything, and ignores unknown names.
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

  void load_options(const TensorMap& state);
  void apply_and_end(const GradScale& scale);
  void apply(GradScale scale);
  bool note_gradients();
  void plan();
  void plan_pieces(const StepInPieces& pieces);
  void begin_batch(Batch& batch);
  void end_batch(Batch& batch);
  void start_state(Slot& slot) const;
  static at::Tensor new_state(const Slot& slot, const StateKind& kind);
  static at::Tensor new_number(const Slot& slot, double initial);
  at::Tensor checked_gradient(size_t slot) const;
  void run(Batch& batch, const GradScale& scale);

  Traits traits_;
  NamedTensors parameters_;
  std::vector<Slot> slots_;  ///< In the order of parameters_.
  std::vector<double> lrs_;  ///< Indexed by group.
  std::vector<Batch> batches_;
  const std::shared_ptr<const bool> life_ = std::make_shared<const bool>(true);  ///< Tells recorded steps of its end.
  bool is_planned_ = false;  ///< True if batches_ fits the set of parameters that had gradients at the last step.
  std::vector<std::vector<std::vector<Batch>>> pieces_;  ///< By lane and piece; empty unless made from batches_.
};

/// An optimizer that has a struct of options for each group. Its member `lr` is the initial learning rate.
template <class Options>
class OptimizerWith : public Optimizer {
 public:
  /// Returns the group's options with the current learning rate.
  Options options(size_t group = 0) const;

 protected:
  /// An option under Python's name. `check` throws if a number is out of range. The betas of Adam are one option.
  struct Field {
    const char* name;
    std::variant<bool Options::*, double Options::*, std::array<double Options::*, 2>> member;
    void (*check)(const std::string& optimizer, const char* option, double value) = nullptr;
  };

  OptimizerWith(Traits traits, const std::vector<ParameterGroup<Options>>& groups, std::vector<Field> fields);

  /// Errors  kInvalidArgument, naming an option that is out of range.
  virtual void check(const Options& options) const;

  /// Returns the gradients for update_foreach: with the sign of `maximize`, and with the weight decay added. If
  /// `is_decoupled`, the weight decay shrinks the parameters instead.
  std::vector<at::Tensor> decayed_gradients(Batch& batch, bool is_decoupled = false) const;

  OptionMap options_of(size_t group) const override;
  void set_options(size_t group, const OptionMap& options) override;

  std::vector<Options> options_;  ///< The options of each group; the base class stores lr.

 private:
  std::vector<Field> fields_;
};

}  // namespace yoke::train
