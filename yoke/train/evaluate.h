// yoke/train/evaluate.h -- puts a model into evaluation mode, or into training mode, for the time of a scope.
//
//     {
//       const auto evaluating = train::evaluate(net);  // dropout passes everything, batch norm uses running statistics
//       const c10::InferenceMode no_autograd;
//       ...
//     }  // each module is in the mode in which it was
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace yoke::train {

/// While it exists, a model is in one mode. At its end each module gets back the mode that it had, so a batch norm that
/// the program keeps in evaluation mode stays there. It changes modes alone: gradients are disabled by
/// c10::InferenceMode or torch::NoGradGuard. Move-only.
class [[nodiscard]] ModeGuard {
 public:
  /// REQUIRES: `model` outlives the guard, and is not changed in structure meanwhile.
  ModeGuard(torch::nn::Module& model, bool is_training);
  ModeGuard(ModeGuard&& other) noexcept : modes_(std::exchange(other.modes_, {})) {}
  ModeGuard& operator=(ModeGuard&&) = delete;
  ~ModeGuard();

 private:
  struct Mode {
    torch::nn::Module* module;
    bool is_training;
  };
  std::vector<Mode> modes_;  ///< Of the model and all its submodules, each before those that it contains.
};

namespace detail {

template <class M>
torch::nn::Module& plain_module_of(M& model) {
  if constexpr (requires { static_cast<torch::nn::Module&>(model); }) {
    return model;
  } else if constexpr (requires { plain_module_of(model.model()); }) {
    return plain_module_of(model.model());
  } else {
    return *model;
  }
}

}  // namespace detail

/// `model` is a module, a holder or pointer of one, or a wrapper with a member model(), such as a
/// DistributedDataParallel or a FullyShardedDataParallel. The call is not collective, but all ranks make it alike.
template <class M>
ModeGuard evaluate(M& model) {
  return ModeGuard(detail::plain_module_of(model), /*is_training=*/false);
}
template <class M>
ModeGuard training(M& model) {
  return ModeGuard(detail::plain_module_of(model), /*is_training=*/true);
}

}  // namespace yoke::train
