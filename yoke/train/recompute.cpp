#include "yoke/train/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/train/detail/recording.h"

namespace yoke::train {
namespace {

using torch::autograd::AutogradContext;

constexpr std::array kAutocastDevices = {at::kCPU, at::kCUDA};

/// The state of this thread on which a call depends in addition to its inputs.
struct Surroundings {
  struct Autocast {
    bool enabled;
    at::ScalarType dtype;
  };
  std::array<Autocast, kAutocastDevices.size()> autocast;
  std::vector<std::pair<at::Generator, at::Tensor>> generators;

  static Surroundings now(const std::vector<at::Generator>& generators) {
    Surroundings result;
    for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
      result.autocast[i] = {at::autocast::is_autocast_enabled(kAutocastDevices[i]),
                            at::autocast::get_autocast_dtype(kAutocastDevices[i])};
    }
    for (auto generator : generators) {
      const std::lock_guard lock(generator.mutex());
      result.generators.emplace_back(generator, generator.get_state());
    }
    return result;
  }

  void restore() const {
    // Cached casts are freed when the outermost Autocast ends, but the second call runs outside of any Autocast.
    // Without this line, its casts would stay cached, and the next Autocast would use them after the optimizer has
    // changed the weights.
    at::autocast::clear_cache();
    for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
      at::autocast::set_autocast_enabled(kAutocastDevices[i], autocast[i].enabled);
      at::autocast::set_autocast_dtype(kAutocastDevices[i], autocast[i].dtype);
    }
    for (auto [generator, state] : generators) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }
};

/// Sets this thread's state for the second call. The destructor restores the previous state, also after an exception.
class WithSurroundings {
 public:
  WithSurroundings(const Surroundings& wanted, const std::vector<at::Generator>& generators)
      : outer_(Surroundings::now(generators)) {
    wanted.restore();
  }
  ~WithSurroundings() { outer_.restore(); }
  WithSurroundings(const WithSurroundings&) = delete;
  WithSurroundings& operator=(const WithSurroundings&) = delete;

 private:
  Surroundings outer_;
};

std::vector<at::Generator> generators_of(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Generator> result = {at::detail::getDefaultCPUGenerator()};
  std::vector<at::Device> seen;
  for (const auto& input : inputs) {
    const auto device = input.device();
    if (device.is_cpu() || std::find(seen.begin(), seen.end(), device) != seen.end()) continue;
    seen.push_back(device);
    result.push_back(at::globalContext().defaultGenerator(device));
  }
  return result;
}

/// A replay of a recorded step would draw other numbers in backward than in forward.
void refuse_to_record_draws(const Surroundings& before, const Surroundings& after) {
  auto* recording = detail::recording_on_this_thread();
  if (recording == nullptr) return;
  for (size_t i = 0; i < before.generators.size(); ++i) {
    const auto &was = before.generators[i].second, &is = after.generators[i].second;  // bytes on the CPU
    if (was.nbytes() == is.nbytes() && std::memcmp(was.const_data_ptr(), is.const_data_ptr(), is.nbytes()) == 0) {
      continue;
    }
    recording->refuse(
        "recompute was called with a function that draws random numbers, as dropout does. It sets the generator "
        "back in backward, which a replay would not do: keep the dropout out of the function, or do without recompute");
  }
}

/// A replay would need the gradient of a tensor that backward makes.
void refuse_to_record_gradients(const std::vector<at::Tensor>& inputs) {
  auto* recording = detail::recording_on_this_thread();
  if (recording == nullptr || std::ranges::none_of(inputs, [](const auto& x) { return x.requires_grad(); })) return;
  recording->refuse(
      "recompute was called with an input that needs a gradient, as the output of a layer before it does, and that "
      "cannot be recorded: do without recompute in a recorded step");
}

/// The data that the autograd graph keeps until backward.
struct FirstCall : torch::CustomClassHolder {
  TensorFunction function;
  std::vector<at::Generator> generators;
  Surroundings surroundings;
  size_t num_outputs = 0;
};

struct Recompute : torch::autograd::Function<Recompute> {
  /// `trigger` requires a gradient, so that autograd makes a node even if no input requires one.
  static std::vector<at::Tensor> forward(AutogradContext* context, const c10::intrusive_ptr<FirstCall>& call,
                                         const at::Tensor& /*trigger*/, at::TensorList inputs) {
    context->set_materialize_grads(false);
    context->save_for_backward(inputs.vec());
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    auto outputs = call->function(inputs.vec());
    call->num_outputs = outputs.size();
    return outputs;
  }

  static std::vector<at::Tensor> backward(AutogradContext* context, const std::vector<at::Tensor>& gradients) {
    if (!torch::autograd::Engine::get_default_engine().is_checkpoint_valid()) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "recompute works only within backward(): autograd::grad would leave the gradients of its parameters "
                  "behind");
    }
    const auto call = c10::static_intrusive_pointer_cast<FirstCall>(context->saved_data["call"].toCapsule());
    std::vector<at::Tensor> inputs;
    for (const auto& saved : context->get_saved_variables()) {
      inputs.push_back(saved.detach().set_requires_grad(saved.requires_grad()));
    }
    std::vector<at::Tensor> roots, root_gradients;
    {
      const c10::AutoGradMode grad_mode(true);
      const WithSurroundings surroundings(call->surroundings, call->generators);
      refuse_to_record_gradients(inputs);
      const auto outputs = call->function(inputs);
      refuse_to_record_draws(call->surroundings, Surroundings::now(call->generators));
      if (outputs.size() != call->num_outputs) {
        throw Error(ErrorCode::kInvalidArgument,
                    "recompute: the function gave {} outputs in forward and {} in backward", call->num_outputs,
                    outputs.size());
      }
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
        roots.push_back(outputs[i]);
        root_gradients.push_back(gradients[i]);
      }
    }
    if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
    std::vector<at::Tensor> result(2);  // no gradients for the call and the trigger
    for (const auto& input : inputs) result.push_back(input.grad());
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> recompute(const TensorFunction& function, const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) throw Error(ErrorCode::kInvalidArgument, "recompute: input {} is undefined", i);
  }
  if (!c10::GradMode::is_enabled()) return function(inputs);
  const auto call = c10::make_intrusive<FirstCall>();
  call->function = function;
  call->generators = generators_of(inputs);
  call->surroundings = Surroundings::now(call->generators);
  const auto trigger = at::empty({0}).set_requires_grad(true);
  return Recompute::apply(call, trigger, at::TensorList(inputs));
}

}  // namespace yoke::train
