// yoke/train/record/recorded.h -- a training step that is recorded once and replayed without autograd and dispatch.
// On a GPU it is replayed as graphs of the device, which has not run on a real one yet (docs/recorded.md).
//
//     train::Recorded step([&](const at::Tensor& x, const at::Tensor& y) {
//       optimizer.zero_grad();
//       const auto loss = torch::cross_entropy_loss(net(x), y);
//       loss.backward();
//       optimizer.step();
//       return loss;
//     });
//     optimizer.set_lr(schedule(i));
//     const auto loss = step(x, y);
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "yoke/train/warn.h"

namespace torch::nn {
class Module;
}

namespace yoke::train {

struct RecordedOptions {
  /// Calls of the step that only run it, because the first steps make what later ones find, such as the optimizer's
  /// state. More of them only run it if DistributedDataParallel has not made its buckets yet.
  int64_t warm_up = 2;

  /// Compares a replay with the step itself, bit by bit: the first replay of each shape, the second, the fourth, the
  /// eighth, and so on.
  bool check = true;
  int64_t check_every = 1000;  ///< With `check`, also the last of so many replays in a row; 1 compares each of them.

  size_t max_plans = 8;  ///< So many shapes are recorded. Steps of other shapes run as they would without Recorded.

  /// Modules whose modes are compared before each replay, with those of all modules in them, as in `{*net}`: train()
  /// and eval(), the rates of dropout layers and recurrent networks, and the momentum of batch norms and instance
  /// norms. Other modes are recorded apart, as other shapes are. The modules outlive this object.
  std::vector<std::reference_wrapper<const torch::nn::Module>> modules = {};
  Warn warn = warn_on_stderr;
};

/// What all steps have in common; see Recorded.
class RecordedBase {
 public:
  RecordedBase(const RecordedBase&) = delete;
  RecordedBase& operator=(const RecordedBase&) = delete;

  int64_t num_recordings() const;  ///< How often the step was recorded.
  int64_t num_replays() const;     ///< How many calls were replays, with those that were compared.

  /// Why the step runs as it would without Recorded, with the operator and the line of the program; empty if it does
  /// not.
  const std::string& why_not() const;

  /// Compares the next replay with the step, as before a checkpoint: it finds what a replay would do wrong since the
  /// last comparison. See RecordedOptions::check.
  void check_next();

 protected:
  using Call = c10::function_ref<std::vector<at::Tensor>(at::TensorList inputs)>;
  explicit RecordedBase(RecordedOptions options);
  ~RecordedBase();

  std::vector<at::Tensor> run(at::TensorList inputs, Call step);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Calls a function that does a whole step of a training: zero_grad, forward, backward, clipping, the optimizer. The
/// function runs in the first calls, and once more to be recorded. After that a call replays the operators that it
/// called, over the same parameters and with new inputs, and the function itself does not run.
///
/// Inputs   all tensors that differ from call to call, as arguments of the function. A replay reads them where they
/// are.
///          Other shapes, strides or dtypes are recorded apart.
/// Results  what the function returns: a tensor, a vector of tensors or void. They have no graph.
/// Numbers  are recorded as they were, and so are decisions of the program, such as how often a loop runs. Those of
///          yoke's optimizers are read at each replay: call set_lr() before the step, and step() in it. train(), eval()
///          and rates of dropout are noticed for RecordedOptions::modules.
/// Grads    a gradient that the program keeps from one call to the next makes the step be recorded again: clone() it.
/// Bits     equal those of the function itself. RecordedOptions::check compares them. If the first comparison differs,
///          a warning says what, and the function runs from then on.
/// Refused  operators that give the program a value, such as item(); shapes that depend on values; tensors that the
///          program keeps besides what the step returns; set_lr() and other
///          changes of numbers, as of a Mean; collectives, except those of DistributedDataParallel. A warning names
///          them, why_not() too, and the function runs from then on.
/// Ranks    of a DistributedDataParallel need not agree. A replay starts the collectives of the step, in the same
///          order, so some ranks may replay a step while others run, record or compare it.
/// Devices  the CPU, and a GPU as graphs of the device: that of the first input, where all tensors of the step must be.
///          On a GPU a difference of a comparison is always a warning.
/// Errors   kFailedPrecondition if a later comparison differs: the steps since the last one may have been wrong, and
///          the function runs from then on. The function's own errors, after which parameters have the gradients that
///          the step itself would have left. Those of its collectives, by the same names.
/// Threads  one at a time. The function's module must outlive it. If an optimizer, a DistributedDataParallel or a
///          tensor that the step uses is replaced by another one and destroyed, the step is recorded again; while the
///          old one lives, it goes on with the old one.
template <class Step>
class Recorded : public RecordedBase {
 public:
  explicit Recorded(Step step, RecordedOptions options = {})
      : RecordedBase(std::move(options)), step_(std::move(step)) {}

  template <class... Inputs>
  auto operator()(const Inputs&... inputs) {
    static_assert((std::is_convertible_v<const Inputs&, at::Tensor> && ...),
                  "all inputs of a Recorded step are tensors: give a number as a tensor, or keep it outside");
    return call(std::index_sequence_for<Inputs...>(), {inputs...});
  }

 private:
  template <size_t... kIndex>
  auto call(std::index_sequence<kIndex...>, const std::array<at::Tensor, sizeof...(kIndex)>& inputs) {
    using Result = std::remove_cvref_t<decltype(step_(inputs[kIndex]...))>;
    static_assert(
        std::is_void_v<Result> || std::is_same_v<Result, at::Tensor> || std::is_same_v<Result, std::vector<at::Tensor>>,
        "a Recorded step returns at::Tensor, std::vector<at::Tensor> or void");
    auto results = run(inputs, [this](at::TensorList given) -> std::vector<at::Tensor> {
      if constexpr (std::is_void_v<Result>) {
        step_(given[kIndex]...);
        return {};
      } else {
        return {step_(given[kIndex]...)};
      }
    });
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      return std::move(results.front());
    } else if constexpr (!std::is_void_v<Result>) {
      return results;
    }
  }

  Step step_;
};

}  // namespace yoke::train
