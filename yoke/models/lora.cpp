#include "yoke/models/lora.h"

#include <ATen/core/grad_mode.h>

#include <string>
#include <string_view>

#include "yoke/models/detail/check.h"

namespace yoke::models {
namespace {

constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight";

double lora_scale(const LoraOptions& options) { return options.alpha / static_cast<double>(options.rank); }

}  // namespace

void add_lora(GptImpl& model, const LoraOptions& options) {
  detail::check_that(options.rank >= 1, "add_lora: the rank is {}, but must be at least 1", options.rank);
  for (const auto& parameter : model.parameters()) parameter.requires_grad_(false);
  for (const auto& named : model.named_modules()) {
    if (!named.key().ends_with(".attn.c_attn")) continue;
    named.value()->as<detail::Conv1dImpl>()->add_lora(options.rank, lora_scale(options));
  }
}

train::NamedTensors merge_lora(const train::NamedTensors& tensors, const LoraOptions& options) {
  const at::NoGradGuard no_grad;
  const auto by_name = [&](const std::string& name) {
    for (const auto& [other, tensor] : tensors) {
      if (other == name) return tensor;
    }
    throw Error(ErrorCode::kInvalidArgument, "merge_lora: there is no {}", name);
  };
  train::NamedTensors merged;
  for (const auto& [name, tensor] : tensors) {
    if (!name.ends_with(kLoraA) && !name.ends_with(kLoraB)) merged.emplace_back(name, tensor);
  }
  for (const auto& [name, a] : tensors) {
    if (!name.ends_with(kLoraA)) continue;
    const auto layer = name.substr(0, name.size() - kLoraA.size());
    const auto b = by_name(layer + std::string(kLoraB));
    for (auto& [other, weight] : merged) {
      if (other == layer + ".weight") weight = weight + b.matmul(a).t() * lora_scale(options);
    }
  }
  return merged;
}

}  // namespace yoke::models
