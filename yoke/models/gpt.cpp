#include "yoke/models/gpt.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <optional>

#include "yoke/models/detail/check.h"

namespace yoke::models {
namespace {

namespace nn = torch::nn;

constexpr double kGptDeviation = 0.02;
constexpr double kRotaryBase = 10'000;

/// Branches that end in a sum of 2 * layers terms begin so much smaller.
double residual_deviation(const GptOptions& options) {
  return kGptDeviation / std::sqrt(2.0 * static_cast<double>(options.num_layers));
}

nn::LayerNorm gpt_norm(const GptOptions& options) {
  return nn::LayerNorm(nn::LayerNormOptions({options.width}).eps(options.epsilon));
}

nn::Embedding gpt_embedding(int64_t count, int64_t width) {
  nn::Embedding result(count, width);
  const at::NoGradGuard no_grad;
  result->weight.normal_(0, kGptDeviation);
  return result;
}

/// Rotates each pair (i, i + half) of the last dimension by the angle of its position and pair.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
  const auto halves = x.chunk(2, -1);
  return x * cosines + at::cat({-halves[1], halves[0]}, -1) * sines;
}

void check_gpt(const GptOptions& options) {
  const auto& o = options;
  for (const auto& [name, value] : {std::pair("vocabulary_size", o.vocabulary_size),
                                    {"max_length", o.max_length},
                                    {"width", o.width},
                                    {"num_layers", o.num_layers},
                                    {"num_heads", o.num_heads}}) {
    detail::check_that(value >= 1, "Gpt: {} is {}, but must be at least 1", name, value);
  }
  detail::check_that(o.hidden_width >= 0, "Gpt: hidden_width is {}; 0 stands for 4 * width", o.hidden_width);
  detail::check_that(o.width % o.num_heads == 0, "Gpt: {} heads do not divide a width of {}; choose a divisor",
                     o.num_heads, o.width);
  const auto head = o.width / o.num_heads;
  detail::check_that(o.positions == Positions::kLearned || head % 2 == 0,
                     "Gpt: rotary positions need heads of an even width; a width of {} and {} heads give {}", o.width,
                     o.num_heads, head);
  detail::check_that(o.dropout >= 0 && o.dropout < 1, "Gpt: a dropout of {} is outside [0, 1)", o.dropout);
}

}  // namespace

namespace detail {

Conv1dImpl::Conv1dImpl(int64_t in, int64_t out, double deviation) {
  weight = register_parameter("weight", at::empty({in, out}).normal_(0, deviation));
  bias = register_parameter("bias", at::zeros({out}));
}

at::Tensor Conv1dImpl::forward(const at::Tensor& x) {
  auto sizes = x.sizes().vec();
  sizes.back() = weight.size(1);
  const auto y = at::addmm(bias, x.reshape({-1, x.size(-1)}), weight).view(sizes);
  return adapter_.added(y, x);
}

void Conv1dImpl::add_lora(const LoraOptions& options) {
  adapter_.add_to(*this, weight.size(0), weight.size(1), options);
}

GptAttentionImpl::GptAttentionImpl(const GptOptions& options)
    : num_heads_(options.num_heads), dropout_(options.dropout) {
  c_attn_ = register_module("c_attn", Conv1d(options.width, 3 * options.width, kGptDeviation));
  c_proj_ = register_module("c_proj", Conv1d(options.width, options.width, residual_deviation(options)));
}

at::Tensor GptAttentionImpl::forward(const at::Tensor& x, const GptPass& pass, size_t layer) {
  const auto batch = x.size(0), length = x.size(1), width = x.size(2);
  const auto parts = c_attn_(x).split(width, -1);
  const auto heads = [&](const at::Tensor& part) {  // [batch, heads, length, width / heads]
    return part.view({batch, length, num_heads_, width / num_heads_}).transpose(1, 2);
  };
  auto query = heads(parts[0]), key = heads(parts[1]), value = heads(parts[2]);
  if (pass.cosines.defined()) {
    query = rotated(query, pass.cosines, pass.sines).to(value.scalar_type());
    key = rotated(key, pass.cosines, pass.sines).to(value.scalar_type());
  }
  if (pass.cache != nullptr) {
    auto& [keys, values] = pass.cache->layers[layer];
    if (!keys.defined()) {
      const std::vector<int64_t> sizes = {batch, num_heads_, pass.max_length, width / num_heads_};
      keys = at::empty(sizes, key.options());
      values = at::empty(sizes, value.options());
    }
    const auto first = pass.cache->length;
    keys.narrow(2, first, length).copy_(key);
    values.narrow(2, first, length).copy_(value);
    key = keys.narrow(2, 0, first + length);
    value = values.narrow(2, 0, first + length);
  }
  const auto mask = pass.mask.defined() ? std::optional(pass.mask) : std::nullopt;
  const auto mixed =
      at::scaled_dot_product_attention(query, key, value, mask, is_training() ? dropout_ : 0, pass.is_causal);
  return at::dropout(c_proj_(mixed.transpose(1, 2).reshape({batch, length, width})), dropout_, is_training());
}

GptPerceptronImpl::GptPerceptronImpl(const GptOptions& options) : dropout_(options.dropout) {
  const auto hidden = options.hidden_width > 0 ? options.hidden_width : 4 * options.width;
  c_fc_ = register_module("c_fc", Conv1d(options.width, hidden, kGptDeviation));
  c_proj_ = register_module("c_proj", Conv1d(hidden, options.width, residual_deviation(options)));
}

at::Tensor GptPerceptronImpl::forward(const at::Tensor& x) {
  return at::dropout(c_proj_(at::gelu(c_fc_(x), "tanh")), dropout_, is_training());
}

GptBlockImpl::GptBlockImpl(const GptOptions& options, size_t layer) : layer_(layer) {
  ln_1_ = register_module("ln_1", gpt_norm(options));
  attn_ = register_module("attn", nn::ModuleHolder<GptAttentionImpl>(options));
  ln_2_ = register_module("ln_2", gpt_norm(options));
  mlp_ = register_module("mlp", nn::ModuleHolder<GptPerceptronImpl>(options));
}

at::Tensor GptBlockImpl::forward(const at::Tensor& x, const GptPass& pass) {
  const auto y = x + attn_->forward(ln_1_(x), pass, layer_);
  return y + mlp_->forward(ln_2_(y));
}

GptTransformerImpl::GptTransformerImpl(const GptOptions& options) : options_(options) {
  wte = register_module("wte", gpt_embedding(options.vocabulary_size, options.width));
  if (options.positions == Positions::kLearned) {
    wpe = register_module("wpe", gpt_embedding(options.max_length, options.width));
  }
  const auto list = register_module("h", nn::ModuleList());
  for (int64_t i = 0; i < options.num_layers; ++i) {
    blocks.emplace_back(options, static_cast<size_t>(i));
    list->push_back(blocks.back().ptr());
  }
  ln_f = register_module("ln_f", gpt_norm(options));
}

GptPass GptTransformerImpl::pass_of(const at::Tensor& x, GptCache* cache) {
  const auto first = cache != nullptr ? cache->length : 0, length = x.size(1);
  GptPass pass{.is_causal = first == 0 && length > 1, .cache = cache, .max_length = options_.max_length};
  const auto on_device = x.options().requires_grad(false);
  if (first > 0 && length > 1) pass.mask = at::ones({length, first + length}, on_device.dtype(at::kBool)).tril_(first);
  if (options_.positions == Positions::kLearned) return pass;

  if (!cosines_.defined() || cosines_.device() != x.device()) {
    const auto size = options_.width / options_.num_heads;
    const auto floats = on_device.dtype(at::kFloat);
    const auto speeds = at::pow(kRotaryBase, at::arange(0, size, 2, floats) / -static_cast<double>(size));
    const auto angles = at::arange(options_.max_length, floats).unsqueeze(1) * speeds;  // [max_length, size / 2]
    const auto both = at::cat({angles, angles}, 1);
    cosines_ = both.cos();
    sines_ = both.sin();
  }
  pass.cosines = cosines_.narrow(0, first, length);
  pass.sines = sines_.narrow(0, first, length);
  return pass;
}

at::Tensor GptTransformerImpl::forward(const at::Tensor& tokens, GptCache* cache) {
  const auto first = cache != nullptr ? cache->length : 0, length = tokens.dim() == 2 ? tokens.size(1) : 0;
  if (length == 0 || first + length > options_.max_length) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "Gpt: tokens are [batch, length] with a length of 1 to {}{}; these have {} dimensions and a length of {}",
        options_.max_length, first > 0 ? fmt::format(", less the {} of the cache", first) : "", tokens.dim(), length);
  }
  if (cache != nullptr) cache->layers.resize(blocks.size());
  auto x = wte(tokens);
  if (wpe) x = x + wpe->weight.narrow(0, first, length);
  x = at::dropout(x, options_.dropout, is_training());
  const auto pass = pass_of(x, cache);
  for (auto& block : blocks) x = block(x, pass);
  if (cache != nullptr) cache->length += length;
  return ln_f(x);
}

}  // namespace detail

GptImpl::GptImpl(const GptOptions& options) : torch::nn::Module("Gpt"), options_(options) {
  check_gpt(options);
  transformer_ = register_module("transformer", nn::ModuleHolder<detail::GptTransformerImpl>(options));
  lm_head_ = register_module("lm_head", train::TiedLinear(transformer_->wte.ptr()));
}

at::Tensor GptImpl::forward(const at::Tensor& tokens, GptCache* cache) {
  return lm_head_(transformer_->forward(tokens, cache));
}

std::vector<std::string> GptImpl::fsdp_units() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < transformer_->blocks.size(); ++i) names.push_back(fmt::format("transformer.h.{}", i));
  return names;
}

}  // namespace yoke::models
