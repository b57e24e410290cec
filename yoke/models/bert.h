// yoke/models/bert.h -- BERT and its small relatives, such as MiniLM, with the parameter names of Hugging Face's
// transformers.
//
//     models::Bert bert(models::read_bert_options("all-minilm-l6-v2/config.json"));    // pretrained.h
//     models::load_bert("all-minilm-l6-v2/model.safetensors", *bert);
//     const auto batch = models::pad_tokens(token_lists);
//     const auto vectors = models::sentence_embeddings(bert(batch.tokens, batch.mask), batch.mask);  // [batch, width]
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/models/lora.h"
#include "yoke/train/shard/unit.h"

namespace yoke::models {

/// The default is bert-base-uncased, 109,482,240 parameters.
struct BertOptions {
  int64_t vocabulary_size = 30522;
  int64_t max_length = 512;  ///< The most tokens of a text.
  int64_t num_types = 2;     ///< Kinds of tokens: 0 and 1 are those of the first and the second text.
  int64_t width = 768;
  int64_t num_layers = 12;
  int64_t num_heads = 12;  ///< Divides `width`.
  int64_t hidden_width = 3072;
  double dropout = 0;  ///< Of embeddings, attention and residuals; only while training.
  double epsilon = 1e-12;
  /// The layer "pooler.dense", which transformers' BertModel has. forward() does not use it, and it needs no gradient
  /// except in a BertClassifier.
  bool pooler = true;
};

BertOptions minilm_l6();  ///< all-MiniLM-L6-v2: a width of 384, 6 layers, 22,713,216 parameters.

namespace detail {

class BertEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit BertEmbeddingsImpl(const BertOptions& options);
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& types);

 private:
  double dropout_;
  torch::nn::Embedding word_{nullptr}, position_{nullptr}, type_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

/// A layer of the network: attention to all tokens, then a perceptron, each added to its input before a layer norm.
class BertLayerImpl : public torch::nn::Module {
 public:
  explicit BertLayerImpl(const BertOptions& options);
  /// Maps [batch, length, width] to the same; `mask` is bool [batch, 1, 1, length], or undefined.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);

 private:
  int64_t num_heads_;
  double dropout_;
  AdaptedLinear query_{nullptr}, value_{nullptr};
  torch::nn::Linear key_{nullptr}, mixed_{nullptr}, wide_{nullptr}, narrow_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr}, output_norm_{nullptr};
};

}  // namespace detail

/// An encoder of the layout of BERT (Devlin et al., NAACL 2019).
///
/// Names      those of transformers' BertModel: "embeddings.word_embeddings.weight",
///            "encoder.layer.0.attention.self.query.weight", ...
/// Weights    initialised as BERT's: normal with deviation 0.02, biases 0.
/// Attention  libtorch's scaled_dot_product_attention. The activation is GELU by the error function.
/// Errors     kInvalidArgument: a size is not positive, `num_heads` does not divide `width`, or the dropout is outside
///            [0, 1).
class BertImpl : public torch::nn::Module {
 public:
  explicit BertImpl(const BertOptions& options);

  /// Maps tokens [batch, length], int64, to vectors [batch, length, width]. `mask`, bool [batch, length], is false for
  /// padding, which no token sees; undefined: there is none. `types`, int64 [batch, length]; undefined: 0.
  /// Errors  kInvalidArgument: the tokens do not have two dimensions, or more than `max_length` columns.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& mask = {}, const at::Tensor& types = {});

  /// Maps vectors [batch, length, width] to that of the first token through "pooler.dense" and tanh: [batch, width].
  /// REQUIRES: BertOptions::pooler.
  at::Tensor pooled(const at::Tensor& vectors);

  const BertOptions& options() const { return options_; }
  std::vector<std::string> fsdp_units() const;  ///< "encoder.layer.0", ..., for FullyShardedOptions::units.

 private:
  BertOptions options_;
  torch::nn::ModuleHolder<detail::BertEmbeddingsImpl> embeddings_{nullptr};
  std::vector<train::Unit<detail::BertLayerImpl>> layers_;
  torch::nn::Linear pooler_{nullptr};
};

class Bert : public torch::nn::ModuleHolder<BertImpl> {
 public:
  using ModuleHolder::ModuleHolder;
};

struct BertClassifierOptions {
  BertOptions bert = {};
  std::vector<std::string> labels;  ///< The names of the classes, in the order of the logits.
};

/// A BERT that classifies texts, in the layout of transformers' BertForSequenceClassification: pooled() vectors through
/// dropout and the layer "classifier". The names of the network begin with "bert.". All parameters are trained.
/// Errors  kInvalidArgument: no labels, a BERT without a pooler, and those of BertImpl.
class BertClassifierImpl : public torch::nn::Module {
 public:
  explicit BertClassifierImpl(const BertClassifierOptions& options);

  /// Maps tokens [batch, length] to logits [batch, labels]. `mask` and `types` are as for BertImpl.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& mask = {}, const at::Tensor& types = {});

  const BertClassifierOptions& options() const { return options_; }
  std::vector<std::string> fsdp_units() const;  ///< "bert.encoder.layer.0", ..., for FullyShardedOptions::units.

 private:
  BertClassifierOptions options_;
  Bert bert_{nullptr};
  torch::nn::Linear classifier_{nullptr};
};

class BertClassifier : public torch::nn::ModuleHolder<BertClassifierImpl> {
 public:
  using ModuleHolder::ModuleHolder;
};

/// Lists of tokens as a batch. On the CPU.
struct PaddedTokens {
  at::Tensor tokens;  ///< int64 [batch, longest]
  at::Tensor mask;    ///< bool [batch, longest], false for padding.
};
/// A list of more than `max_length` tokens keeps the first ones and its last one, "[SEP]"; 0: no limit.
PaddedTokens pad_tokens(const std::vector<std::vector<int64_t>>& lists, int64_t max_length = 0, int64_t padding = 0);

/// How the vectors of a text's tokens become one: the modules Pooling and Normalize of sentence-transformers.
struct SentenceOptions {
  bool first_token = false;  ///< The vector of the first token, "[CLS]", instead of the mean of all.
  bool normalize = true;     ///< Divides the vector by its length (2-norm).
};

/// Maps the vectors [batch, length, width] of texts' tokens to one for each text: [batch, width]. In float.
at::Tensor sentence_embeddings(const at::Tensor& vectors, const at::Tensor& mask, const SentenceOptions& options = {});

}  // namespace yoke::models
