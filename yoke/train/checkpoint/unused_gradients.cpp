#include "yoke/train/checkpoint/detail/unused_gradients.h"

#include <algorithm>

namespace yoke::train::detail {

UnusedGradients::UnusedGradients()
    : watch_([this](at::TensorList parameters, Mean) {
        for (const auto& parameter : parameters) {
          const auto& gradient = parameter.grad();
          used_[parameter.unsafeGetTensorImpl()] = {
              gradient.unsafeGetTensorImpl(), gradient.defined() ? static_cast<uint32_t>(gradient._version()) : 0};
        }
      }) {}

bool UnusedGradients::any(const std::vector<at::Tensor>& parameters) const {
  return std::ranges::any_of(parameters, [&](const at::Tensor& parameter) {
    const auto& gradient = parameter.grad();
    if (!gradient.defined()) return false;
    const auto found = used_.find(parameter.unsafeGetTensorImpl());
    if (found != used_.end() && found->second.gradient == gradient.unsafeGetTensorImpl() &&
        found->second.version == static_cast<uint32_t>(gradient._version())) {
      return false;
    }
    return gradient.layout() != at::kStrided || gradient.ne(0).any().item<bool>();
  });
}

}  // namespace yoke::train::detail
