// yoke/models/lora.h -- trains a network by small matrices beside its weights, which stay as they are (LoRA).
//
//     models::load_gpt("gpt2", *gpt);
//     models::add_lora(*gpt, {.rank = 8});                     // before to(), the optimizer and the parallel wrapper
//     ... train ...
//     models::write_gpt("mine", gpt->options(), models::merge_lora(tensors, {.rank = 8}));
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "yoke/train/named_tensors.h"

namespace yoke::models {

struct LoraOptions {
  int64_t rank = 8;   ///< Of the matrices' product.
  double alpha = 16;  ///< The product is multiplied by alpha / rank.
};

/// Freezes all parameters of a Gpt, Bert or BertClassifier, except a classifier's layers "classifier" and
/// "bert.pooler", and adds A [rank, in] and B [out, rank] to the layers "c_attn" of a GPT-2, and "query" and "value" of
/// a BERT. The output y of such a layer becomes y + (alpha / rank) x A^T B^T. A begins like a Linear's weight and B
/// with 0, so that the network begins unchanged. Their names are those of the package peft:
/// "transformer.h.0.attn.c_attn.lora_A.weight", ...
/// Errors  kInvalidArgument: a rank below 1, or a network without such layers; kFailedPrecondition: the model has
///         adapters already.
/// Source  Hu et al., "LoRA", ICLR 2022.
void add_lora(torch::nn::Module& model, const LoraOptions& options = {});

/// Returns the tensors without adapters, whose products are added to the weights: those of a network that computes the
/// same. `tensors` are named_tensors() of the model, whole ones; they are not changed.
train::NamedTensors merge_lora(const train::NamedTensors& tensors, const LoraOptions& options = {});

/// Writes the adapters alone, and the layers beside them that are trained, as the package peft does:
/// adapter_config.json and adapter_model.safetensors, which PeftModel.from_pretrained(network, folder) loads.
/// `base` is what transformers loads the network from: its folder or its name.
/// Errors  kInvalidArgument: there are no adapters; as errno says if writing fails.
void write_lora(const std::filesystem::path& folder, const train::NamedTensors& tensors, const LoraOptions& options,
                const std::string& base);

namespace detail {

/// The matrices A and B beside a layer's weight, or nothing.
class Adapter {
 public:
  void add_to(torch::nn::Module& layer, int64_t in, int64_t out, const LoraOptions& options);
  /// Adds the product of `x` [..., in] to `y` [..., out].
  at::Tensor added(const at::Tensor& y, const at::Tensor& x);

 private:
  torch::nn::Linear a_{nullptr}, b_{nullptr};
  double scale_ = 0;
};

/// A Linear that can have an adapter.
class AdaptedLinearImpl : public torch::nn::LinearImpl {
 public:
  using LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& x) { return adapter_.added(LinearImpl::forward(x), x); }
  void add_lora(const LoraOptions& options);

 private:
  Adapter adapter_;
};
using AdaptedLinear = torch::nn::ModuleHolder<AdaptedLinearImpl>;

}  // namespace detail

}  // namespace yoke::models
