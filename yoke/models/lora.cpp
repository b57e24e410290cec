#include "yoke/models/lora.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/models/bert.h"
#include "yoke/models/detail/check.h"
#include "yoke/models/gpt.h"
#include "yoke/train/format/safetensors.h"

namespace yoke::models {
namespace {

constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight";

double lora_scale(const LoraOptions& options) { return options.alpha / static_cast<double>(options.rank); }

/// Whether the tensor belongs to the layers of a classifier that are trained beside adapters.
bool is_of_head(const std::string& name) { return name.starts_with("classifier.") || name.starts_with("bert.pooler."); }

bool is_of_adapter(const std::string& name) { return name.ends_with(kLoraA) || name.ends_with(kLoraB); }

/// Whether the layer's weight is [in, out], as in a Conv1d.
bool is_transposed(const std::string& layer) { return layer.ends_with("c_attn"); }

}  // namespace

namespace detail {

void Adapter::add_to(torch::nn::Module& layer, int64_t in, int64_t out, const LoraOptions& options) {
  if (a_) throw Error(ErrorCode::kFailedPrecondition, "add_lora: the model has adapters already");
  a_ = layer.register_module("lora_A", torch::nn::Linear(torch::nn::LinearOptions(in, options.rank).bias(false)));
  b_ = layer.register_module("lora_B", torch::nn::Linear(torch::nn::LinearOptions(options.rank, out).bias(false)));
  const at::NoGradGuard no_grad;
  b_->weight.zero_();
  scale_ = lora_scale(options);
}

at::Tensor Adapter::added(const at::Tensor& y, const at::Tensor& x) { return a_ ? y + b_(a_(x)) * scale_ : y; }

void AdaptedLinearImpl::add_lora(const LoraOptions& lora) {
  adapter_.add_to(*this, options.in_features(), options.out_features(), lora);
}

}  // namespace detail

void add_lora(torch::nn::Module& model, const LoraOptions& options) {
  detail::check_that(options.rank >= 1, "add_lora: the rank is {}, but must be at least 1", options.rank);
  for (auto& parameter : model.named_parameters()) {
    if (!is_of_head(parameter.key())) parameter.value().requires_grad_(false);
  }
  bool is_any = false;
  for (const auto& [name, layer] : model.named_modules().pairs()) {
    if (auto* linear = layer->as<detail::AdaptedLinearImpl>()) {
      linear->add_lora(options);
    } else if (auto* conv = layer->as<detail::Conv1dImpl>(); conv != nullptr && is_transposed(name)) {
      conv->add_lora(options);
    } else {
      continue;
    }
    is_any = true;
  }
  detail::check_that(is_any, "add_lora: the network has none of the layers that get adapters, as a GPT-2 or BERT has");
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
    if (!is_of_adapter(name)) merged.emplace_back(name, tensor);
  }
  for (const auto& [name, a] : tensors) {
    if (!name.ends_with(kLoraA)) continue;
    const auto layer = name.substr(0, name.size() - kLoraA.size());
    const auto b = by_name(layer + std::string(kLoraB));
    for (auto& [other, weight] : merged) {
      if (other != layer + ".weight") continue;
      const auto product = b.matmul(a) * lora_scale(options);
      weight = weight + (is_transposed(layer) ? product.t() : product);
    }
  }
  return merged;
}

void write_lora(const std::filesystem::path& folder, const train::NamedTensors& tensors, const LoraOptions& options,
                const std::string& base) {
  train::TensorMap written;
  std::vector<std::string> layers, heads;
  for (const auto& [name, tensor] : tensors) {
    if (!is_of_adapter(name) && !is_of_head(name)) continue;
    written.emplace("base_model.model." + name, tensor);
    // "c_attn" of "transformer.h.0.attn.c_attn.lora_A.weight", and "pooler" of "bert.pooler.dense.weight"
    const auto parts = split(name, '.');
    auto& list = is_of_head(name) ? heads : layers;
    const auto part = std::string(is_of_head(name) ? parts[parts[0] == "bert" ? 1 : 0] : parts[parts.size() - 3]);
    if (std::ranges::find(list, part) == list.end()) list.push_back(part);
  }
  detail::check_that(!layers.empty(), "write_lora: the tensors have no adapters");
  std::filesystem::create_directories(folder);
  train::write_safetensors(folder / "adapter_model.safetensors", written, {{"format", "pt"}});
  replace_file(folder / "adapter_config.json",
               json_page(SortedJson{{"peft_type", "LORA"},
                                    {"task_type", heads.empty() ? "CAUSAL_LM" : "SEQ_CLS"},
                                    {"base_model_name_or_path", base},
                                    {"r", options.rank},
                                    {"lora_alpha", options.alpha},
                                    {"lora_dropout", 0},
                                    {"bias", "none"},
                                    {"fan_in_fan_out", is_transposed(layers.front())},
                                    {"inference_mode", true},
                                    {"target_modules", layers},
                                    {"modules_to_save", heads.empty() ? SortedJson() : SortedJson(heads)}}));
}

}  // namespace yoke::models
