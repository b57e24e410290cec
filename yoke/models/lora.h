// yoke/models/lora.h -- trains a GPT by small matrices beside its weights, which stay as they are (LoRA).
//
//     models::load_gpt("gpt2", *gpt);
//     models::add_lora(*gpt, {.rank = 8});                     // before to(), the optimizer and the parallel wrapper
//     ... train ...
//     models::write_gpt("mine", gpt->options(), models::merge_lora(tensors, {.rank = 8}));
#pragma once

#include <cstdint>

#include "yoke/models/gpt.h"
#include "yoke/train/named_tensors.h"

namespace yoke::models {

struct LoraOptions {
  int64_t rank = 8;   ///< Of the matrices' product.
  double alpha = 16;  ///< The product is multiplied by alpha / rank.
};

/// Freezes all parameters of the model, and adds A [rank, width] and B [3 width, rank] to each "attn.c_attn", whose
/// output becomes x W + b + (alpha / rank) x A^T B^T. A begins like a Linear's weight and B with 0, so that the network
/// begins unchanged. Their names are those of the package peft: "transformer.h.0.attn.c_attn.lora_A.weight", ...
/// Errors  kInvalidArgument: a rank below 1; kFailedPrecondition: the model has adapters already.
/// Source  Hu et al., "LoRA", ICLR 2022.
void add_lora(GptImpl& model, const LoraOptions& options = {});

/// Returns the tensors without adapters, whose products are added to the weights: those of a GPT-2 that computes the
/// same. `tensors` are named_tensors() of the model, whole ones; they are not changed.
train::NamedTensors merge_lora(const train::NamedTensors& tensors, const LoraOptions& options = {});

}  // namespace yoke::models
