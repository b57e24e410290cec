// yoke/models/gpt.h -- GPT-2 and smaller networks of its kind, with the parameter names of Hugging Face's transformers.
//
//     models::Gpt gpt(models::GptOptions{.vocabulary_size = 256, .max_length = 128, .width = 128});
//     const auto logits = gpt(tokens);  // [batch, length] to [batch, length, 256]
//     train::FullyShardedDataParallel net(gpt, world, {.units = gpt->fsdp_units()});
//
// pretrained.h reads weights that transformers wrote; generate.h samples.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "yoke/models/lora.h"
#include "yoke/train/shard/unit.h"
#include "yoke/train/tied_linear.h"

namespace yoke::models {

/// How a network knows the order of its tokens.
enum class Positions {
  kLearned,  ///< A vector per position is added to the embeddings, as in GPT-2.
  kRotary,   ///< Queries and keys are rotated by angles that grow with the position, so only distances matter.
};

/// The default is GPT-2's smallest published size, 124,439,808 parameters.
struct GptOptions {
  int64_t vocabulary_size = 50257;
  int64_t max_length = 1024;  ///< The most tokens of a sequence.
  int64_t width = 768;
  int64_t num_layers = 12;
  int64_t num_heads = 12;    ///< Divides `width`; with rotary positions, `width / num_heads` is even.
  int64_t hidden_width = 0;  ///< Of the perceptron in each block; 0: 4 * width.
  Positions positions = Positions::kLearned;
  double dropout = 0;  ///< Of embeddings, attention and residuals; only while training.
  double epsilon = 1e-5;
};

/// The keys and values of earlier tokens, so that generating a token computes that token alone. Belongs to one batch of
/// sequences that grow together.
struct GptCache {
  struct Layer {
    at::Tensor keys, values;  ///< [batch, heads, max_length, width / heads]; made by the first forward.
  };
  int64_t length = 0;  ///< The number of tokens seen.
  std::vector<Layer> layers;
};

namespace detail {

/// What all blocks need in one forward.
struct GptPass {
  at::Tensor cosines, sines;  ///< [length, width / heads] of the rotation; undefined with learned positions.
  at::Tensor mask;            ///< [length, all tokens], bool; undefined if `is_causal` or a single query needs none.
  bool is_causal = true;      ///< The queries are the first tokens.
  GptCache* cache = nullptr;  ///< Null while training.
  int64_t max_length = 0;     ///< Room for so many tokens in a new cache.
};

/// y = x W + b with W [in, out], the transpose of a Linear's: transformers' Conv1D, in which GPT-2's weights are
/// stored.
class Conv1dImpl : public torch::nn::Module {
 public:
  Conv1dImpl(int64_t in, int64_t out, double deviation);  ///< Weights are normal with this standard deviation.
  at::Tensor forward(const at::Tensor& x);                ///< [..., in] to [..., out].
  void add_lora(const LoraOptions& options);

  at::Tensor weight;  ///< [in, out]
  at::Tensor bias;    ///< [out]

 private:
  Adapter adapter_;
};
using Conv1d = torch::nn::ModuleHolder<Conv1dImpl>;

class GptAttentionImpl : public torch::nn::Module {
 public:
  explicit GptAttentionImpl(const GptOptions& options);
  at::Tensor forward(const at::Tensor& x, const GptPass& pass, size_t layer);

 private:
  int64_t num_heads_;
  double dropout_;
  Conv1d c_attn_{nullptr}, c_proj_{nullptr};
};

class GptPerceptronImpl : public torch::nn::Module {
 public:
  explicit GptPerceptronImpl(const GptOptions& options);
  at::Tensor forward(const at::Tensor& x);

 private:
  double dropout_;
  Conv1d c_fc_{nullptr}, c_proj_{nullptr};
};

/// A layer of the network: attention, then a perceptron, each after a layer norm and added to its input.
class GptBlockImpl : public torch::nn::Module {
 public:
  GptBlockImpl(const GptOptions& options, size_t layer);
  at::Tensor forward(const at::Tensor& x, const GptPass& pass);  ///< [batch, length, width] to the same.

 private:
  size_t layer_;
  torch::nn::LayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  torch::nn::ModuleHolder<GptAttentionImpl> attn_{nullptr};
  torch::nn::ModuleHolder<GptPerceptronImpl> mlp_{nullptr};
};

/// The network without its head.
class GptTransformerImpl : public torch::nn::Module {
 public:
  explicit GptTransformerImpl(const GptOptions& options);
  at::Tensor forward(const at::Tensor& tokens, GptCache* cache);

  torch::nn::Embedding wte{nullptr}, wpe{nullptr};  ///< wpe is null with rotary positions.
  std::vector<train::Unit<GptBlockImpl>> blocks;
  torch::nn::LayerNorm ln_f{nullptr};

 private:
  GptPass pass_of(const at::Tensor& x, GptCache* cache);

  GptOptions options_;
  at::Tensor cosines_, sines_;  ///< [max_length, width / heads] on the device of the last forward.
};

}  // namespace detail

/// A decoder of the layout of GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).
///
/// Names      those of transformers' GPT2LMHeadModel: "transformer.wte.weight", "transformer.h.0.attn.c_attn.weight"
///            [width, 3 width], ...; "lm_head.weight" is tied to "transformer.wte.weight". Rotary positions have no
///            "transformer.wpe.weight"; transformers has no such GPT-2.
/// Weights    initialised as GPT-2's: normal with deviation 0.02, those that end a residual branch divided by
///            sqrt(2 layers); biases 0. They are drawn on the CPU in the order of construction.
/// Attention  libtorch's scaled_dot_product_attention, which takes a flash kernel where it has one, on CPUs too.
/// Precision  under train::Autocast, products are in its dtype; layer norms stay in float.
/// Source     rotary positions: Su et al., "RoFormer", 2021, in the layout of GPT-NeoX (halves, base 10,000).
class GptImpl : public torch::nn::Module {
 public:
  /// Errors  kInvalidArgument: a size is not positive, `num_heads` does not divide `width`, rotary heads are odd,
  ///         or the dropout is outside [0, 1).
  explicit GptImpl(const GptOptions& options);

  /// Maps tokens [batch, length], int64 in [0, vocabulary_size), to logits [batch, length, vocabulary_size] of the
  /// token after each. With a cache, `tokens` follow those that it has seen, whose keys and values it keeps; use it
  /// without gradients only, and begin with an empty one.
  /// Errors  kInvalidArgument: the tokens do not have two dimensions, or there are more than `max_length` with those of
  ///         the cache. libtorch's error if a token is outside of the vocabulary.
  at::Tensor forward(const at::Tensor& tokens, GptCache* cache = nullptr);

  const GptOptions& options() const { return options_; }
  std::vector<std::string> fsdp_units() const;  ///< "transformer.h.0", ..., for FullyShardedOptions::units.

 private:
  GptOptions options_;
  torch::nn::ModuleHolder<detail::GptTransformerImpl> transformer_{nullptr};
  train::TiedLinear lm_head_{nullptr};
};

class Gpt : public torch::nn::ModuleHolder<GptImpl> {
 public:
  using ModuleHolder::ModuleHolder;
};

}  // namespace yoke::models
