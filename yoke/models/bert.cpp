#include "yoke/models/bert.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "yoke/models/detail/check.h"
#include "yoke/models/detail/names.h"

namespace yoke::models {
namespace {

namespace nn = torch::nn;

/// Initialises as transformers' BertPreTrainedModel does.
template <class Holder>
Holder bert_initialised(Holder module) {
  const at::NoGradGuard no_grad;
  module->weight.normal_(0, 0.02);
  if constexpr (requires { module->bias; }) module->bias.zero_();
  return module;
}

nn::Linear bert_linear(int64_t in, int64_t out) { return bert_initialised(nn::Linear(in, out)); }

detail::AdaptedLinear bert_adapted(const BertOptions& options) {
  return bert_initialised(detail::AdaptedLinear(options.width, options.width));
}

nn::LayerNorm bert_norm(const BertOptions& options) {
  return nn::LayerNorm(nn::LayerNormOptions({options.width}).eps(options.epsilon));
}

std::shared_ptr<nn::Module> names_in(nn::Module& module, const char* name) {
  return module.register_module(name, std::make_shared<detail::Names>());
}

void check_bert(const BertOptions& o) {
  for (const auto& [name, value] : {std::pair("vocabulary_size", o.vocabulary_size),
                                    {"max_length", o.max_length},
                                    {"num_types", o.num_types},
                                    {"width", o.width},
                                    {"num_layers", o.num_layers},
                                    {"num_heads", o.num_heads},
                                    {"hidden_width", o.hidden_width}}) {
    detail::check_that(value >= 1, "Bert: {} is {}, but must be at least 1", name, value);
  }
  detail::check_that(o.width % o.num_heads == 0, "Bert: {} heads do not divide a width of {}; choose a divisor",
                     o.num_heads, o.width);
  detail::check_that(o.dropout >= 0 && o.dropout < 1, "Bert: a dropout of {} is outside [0, 1)", o.dropout);
}

}  // namespace

BertOptions minilm_l6() { return {.width = 384, .num_layers = 6, .num_heads = 12, .hidden_width = 1536}; }

namespace detail {

BertEmbeddingsImpl::BertEmbeddingsImpl(const BertOptions& options) : dropout_(options.dropout) {
  const auto table = [&](int64_t rows) { return bert_initialised(nn::Embedding(rows, options.width)); };
  word_ = register_module("word_embeddings", table(options.vocabulary_size));
  position_ = register_module("position_embeddings", table(options.max_length));
  type_ = register_module("token_type_embeddings", table(options.num_types));
  norm_ = register_module("LayerNorm", bert_norm(options));
}

at::Tensor BertEmbeddingsImpl::forward(const at::Tensor& tokens, const at::Tensor& types) {
  const auto of_type = types.defined() ? type_(types) : type_->weight.select(0, 0);
  const auto x = word_(tokens) + of_type + position_->weight.narrow(0, 0, tokens.size(1));
  return at::dropout(norm_(x), dropout_, is_training());
}

BertLayerImpl::BertLayerImpl(const BertOptions& options) : num_heads_(options.num_heads), dropout_(options.dropout) {
  const auto attention = names_in(*this, "attention");
  const auto self = names_in(*attention, "self");
  query_ = self->register_module("query", bert_adapted(options));
  key_ = self->register_module("key", bert_linear(options.width, options.width));
  value_ = self->register_module("value", bert_adapted(options));
  const auto attention_output = names_in(*attention, "output");
  mixed_ = attention_output->register_module("dense", bert_linear(options.width, options.width));
  attention_norm_ = attention_output->register_module("LayerNorm", bert_norm(options));
  wide_ = names_in(*this, "intermediate")->register_module("dense", bert_linear(options.width, options.hidden_width));
  const auto output = names_in(*this, "output");
  narrow_ = output->register_module("dense", bert_linear(options.hidden_width, options.width));
  output_norm_ = output->register_module("LayerNorm", bert_norm(options));
}

at::Tensor BertLayerImpl::forward(const at::Tensor& x, const at::Tensor& mask) {
  const auto batch = x.size(0), length = x.size(1), width = x.size(2);
  const auto heads = [&](const at::Tensor& part) {  // [batch, heads, length, width / heads]
    return part.view({batch, length, num_heads_, width / num_heads_}).transpose(1, 2);
  };
  const auto seen = mask.defined() ? std::optional(mask.expand({batch, 1, length, length})) : std::nullopt;
  const auto mixed = at::scaled_dot_product_attention(heads(query_(x)), heads(key_(x)), heads(value_(x)), seen,
                                                      is_training() ? dropout_ : 0);
  const auto drop = [this](const at::Tensor& part) { return at::dropout(part, dropout_, is_training()); };
  const auto y = attention_norm_(drop(mixed_(mixed.transpose(1, 2).reshape({batch, length, width}))) + x);
  return output_norm_(drop(narrow_(at::gelu(wide_(y)))) + y);
}

}  // namespace detail

BertImpl::BertImpl(const BertOptions& options) : torch::nn::Module("Bert"), options_(options) {
  check_bert(options);
  embeddings_ = register_module("embeddings", nn::ModuleHolder<detail::BertEmbeddingsImpl>(options));
  const auto list = names_in(*this, "encoder")->register_module("layer", nn::ModuleList());
  for (int64_t i = 0; i < options.num_layers; ++i) {
    layers_.emplace_back(options);
    list->push_back(layers_.back().ptr());
  }
  if (!options.pooler) return;
  pooler_ = names_in(*this, "pooler")->register_module("dense", bert_linear(options.width, options.width));
  for (const auto& parameter : pooler_->parameters()) parameter.requires_grad_(false);
}

at::Tensor BertImpl::forward(const at::Tensor& tokens, const at::Tensor& mask, const at::Tensor& types) {
  const auto length = tokens.dim() == 2 ? tokens.size(1) : 0;
  detail::check_that(length >= 1 && length <= options_.max_length,
                     "Bert: tokens are [batch, length] with a length of 1 to {}; these have {} dimensions and a length "
                     "of {}",
                     options_.max_length, tokens.dim(), length);
  auto x = embeddings_->forward(tokens, types);
  const auto seen = mask.defined() ? mask.to(at::kBool).unsqueeze(1).unsqueeze(1) : at::Tensor();
  for (auto& layer : layers_) x = layer(x, seen);
  return x;
}

std::vector<std::string> BertImpl::fsdp_units() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < layers_.size(); ++i) names.push_back(fmt::format("encoder.layer.{}", i));
  return names;
}

at::Tensor BertImpl::pooled(const at::Tensor& vectors) { return pooler_(vectors.select(1, 0)).tanh(); }

BertClassifierImpl::BertClassifierImpl(const BertClassifierOptions& options)
    : torch::nn::Module("BertClassifier"), options_(options) {
  detail::check_that(!options.labels.empty(), "BertClassifier: there are no labels; name the classes");
  detail::check_that(options.bert.pooler, "BertClassifier: the BERT has no pooler, which classifying needs");
  bert_ = register_module("bert", Bert(options.bert));
  for (const auto& parameter : bert_->parameters()) parameter.requires_grad_(true);
  const auto num_labels = static_cast<int64_t>(options.labels.size());
  classifier_ = register_module("classifier", bert_linear(options.bert.width, num_labels));
}

at::Tensor BertClassifierImpl::forward(const at::Tensor& tokens, const at::Tensor& mask, const at::Tensor& types) {
  const auto pooled = bert_->pooled(bert_->forward(tokens, mask, types));
  return classifier_(at::dropout(pooled, options_.bert.dropout, is_training()));
}

std::vector<std::string> BertClassifierImpl::fsdp_units() const {
  auto names = bert_->fsdp_units();
  for (auto& name : names) name = "bert." + name;
  return names;
}

PaddedTokens pad_tokens(const std::vector<std::vector<int64_t>>& lists, int64_t max_length, int64_t padding) {
  const auto length_of = [&](const std::vector<int64_t>& list) {
    const auto length = static_cast<int64_t>(list.size());
    return max_length > 0 ? std::min(length, max_length) : length;
  };
  int64_t longest = 0;
  for (const auto& list : lists) longest = std::max(longest, length_of(list));
  const auto count = static_cast<int64_t>(lists.size());
  PaddedTokens result{at::full({count, longest}, padding, at::kLong), at::zeros({count, longest}, at::kBool)};
  for (int64_t row = 0; row < count; ++row) {
    const auto& list = lists[static_cast<size_t>(row)];
    const auto length = length_of(list);
    if (length == 0) continue;
    auto* to = result.tokens.mutable_data_ptr<int64_t>() + row * longest;
    std::copy_n(list.begin(), length, to);
    to[length - 1] = list.back();
    result.mask.select(0, row).narrow(0, 0, length).fill_(true);
  }
  return result;
}

at::Tensor sentence_embeddings(const at::Tensor& vectors, const at::Tensor& mask, const SentenceOptions& options) {
  const auto pooled = [&] {
    if (options.first_token) return vectors.select(1, 0).to(at::kFloat);
    const auto weights = mask.to(at::kFloat).unsqueeze(-1);  // [batch, length, 1]
    return (vectors.to(at::kFloat) * weights).sum(1) / weights.sum(1).clamp_min(1e-9);
  }();
  if (!options.normalize) return pooled;
  return pooled / pooled.norm(2, {-1}, /*keepdim=*/true).clamp_min(1e-12);
}

}  // namespace yoke::models
