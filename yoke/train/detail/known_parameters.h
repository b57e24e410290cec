// yoke/train/detail/known_parameters.h -- notices that a module of a model was replaced.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace yoke::train::detail {

/// The parameters of a model when an object was made that averages their gradients over ranks. Gradients of other
/// parameters would stay each rank's own.
class KnownParameters {
 public:
  explicit KnownParameters(const torch::nn::Module& model) : model_(model) {
    for (const auto& item : model.named_parameters()) {
      names_.insert(item.key());
      known_.emplace(item.value().unsafeGetTensorImpl(), item.value());
    }
  }

  /// Says which parameter of the model, if any, is trained and was not there at construction. Looks through the model.
  std::string change() const {
    for (const auto& item : model_.named_parameters()) {
      if (!item.value().requires_grad() || known_.contains(item.value().unsafeGetTensorImpl())) continue;
      return names_.contains(item.key())
                 ? "the model has another '" + item.key() + "' than when this was constructed (a module was replaced)"
                 : "the model has a parameter '" + item.key() + "' that it did not have when this was constructed";
    }
    return "";
  }

  /// Called at the end of a backward, with whether each parameter whose gradient is averaged has had one. Looks through
  /// the model only if one has none that had one in the backward before, as those of a replaced module do.
  std::string change(const std::vector<uint8_t>& has_arrived) {
    bool looks = false;
    for (size_t i = 0; i < has_arrived.size(); ++i) {
      looks = looks || (has_arrived[i] == 0 && (i >= before_.size() || before_[i] != 0));
    }
    before_ = has_arrived;
    return looks ? change() : "";
  }

 private:
  const torch::nn::Module& model_;
  std::unordered_set<std::string> names_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> known_;  ///< Kept, so that no other tensor has the address.
  std::vector<uint8_t> before_;
};

}  // namespace yoke::train::detail
