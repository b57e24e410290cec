// yoke/train/record/detail/modes.h -- flags and numbers of modules by which a step decides what it does.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace yoke::train::detail {

using ModuleList = std::vector<std::reference_wrapper<const torch::nn::Module>>;

/// The modes of some modules and of all that are in them: is_training(), the rates of dropout layers and recurrent
/// networks, and the momentum of batch norms and instance norms.
class ModuleModes {
 public:
  /// The modules outlive this object.
  explicit ModuleModes(ModuleList roots) : roots_(std::move(roots)) {}

  /// Looks for modules that were added.
  void find_modules();

  /// The modes of now. It takes about 5 ns a module.
  const std::vector<double>& now();

  std::vector<at::Tensor> parameters() const;

  /// The name that a parameter or a buffer has in its module; empty if it is in none of them.
  std::string name_of(const c10::TensorImpl* tensor) const;

 private:
  void add(const torch::nn::Module& module);

  ModuleList roots_;
  std::vector<const torch::nn::Module*> modules_;
  std::vector<std::weak_ptr<const torch::nn::Module>> owned_;  ///< Those that may end before.
  std::vector<const double*> numbers_;
  std::vector<const std::optional<double>*> momentums_;
  std::vector<double> values_;
  bool has_modules_ = false;
};

}  // namespace yoke::train::detail
