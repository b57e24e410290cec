#include "yoke/models/vit.h"

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/init.h>

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "yoke/models/detail/check.h"
#include "yoke/models/detail/names.h"

namespace yoke::models {
namespace {

namespace nn = torch::nn;

constexpr double kDeviation = 0.02;
constexpr double kEpsilon = 1e-6;  // both libraries', unlike LayerNorm's own

nn::LayerNorm layer_norm(int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width}).eps(kEpsilon)); }

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kOutside{{
    // timm's name, torchvision's name
    {"cls_token", "class_token"},
    {"pos_embed", "encoder.pos_embedding"},
    {"patch_embed.proj.weight", "conv_proj.weight"},
    {"patch_embed.proj.bias", "conv_proj.bias"},
    {"norm.weight", "encoder.ln.weight"},
    {"norm.bias", "encoder.ln.bias"},
    {"head.weight", "heads.head.weight"},
    {"head.bias", "heads.head.bias"},
}};
// In a block, "blocks.N." or "encoder.layers.encoder_layer_N.". The last two are torchvision's before 0.14.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kInBlock{{
    {"norm1.", "ln_1."},
    {"norm2.", "ln_2."},
    {"attn.qkv.weight", "self_attention.in_proj_weight"},
    {"attn.qkv.bias", "self_attention.in_proj_bias"},
    {"attn.proj.", "self_attention.out_proj."},
    {"mlp.fc1.", "mlp.0."},
    {"mlp.fc2.", "mlp.3."},
    {"mlp.fc1.", "mlp.linear_1."},
    {"mlp.fc2.", "mlp.linear_2."},
}};
constexpr std::string_view kTimmBlock = "blocks.", kTorchvisionBlock = "encoder.layers.encoder_layer_";

std::string renamed(const std::string& name, bool to_torchvision) {
  const auto from = [&](const auto& pair) { return to_torchvision ? pair.first : pair.second; };
  const auto to = [&](const auto& pair) { return to_torchvision ? pair.second : pair.first; };
  for (const auto& pair : kOutside) {
    if (name == from(pair)) return std::string(to(pair));
  }
  const std::pair block(kTimmBlock, kTorchvisionBlock);
  if (!name.starts_with(from(block))) return name;
  const auto dot = name.find('.', from(block).size());
  if (dot == std::string::npos) return name;
  const auto number = name.substr(from(block).size(), dot - from(block).size());
  const auto rest = std::string_view(name).substr(dot + 1);
  for (const auto& pair : kInBlock) {
    if (!rest.starts_with(from(pair))) continue;
    return std::string(to(block)) + number + "." + std::string(to(pair)) + std::string(rest.substr(from(pair).size()));
  }
  return name;
}

train::TensorMap renamed(const train::TensorMap& tensors, bool to_torchvision) {
  train::TensorMap result;
  for (const auto& [name, tensor] : tensors) result.emplace(renamed(name, to_torchvision), tensor);
  return result;
}

}  // namespace

ViTOptions vit_tiny(int64_t num_classes) { return {.width = 192, .num_heads = 3, .num_classes = num_classes}; }
ViTOptions vit_small(int64_t num_classes) { return {.num_classes = num_classes}; }
ViTOptions vit_base(int64_t num_classes) { return {.width = 768, .num_heads = 12, .num_classes = num_classes}; }

ViTAttentionImpl::ViTAttentionImpl(int64_t width, int64_t num_heads) : num_heads_(num_heads) {
  qkv_ = register_module("qkv", nn::Linear(width, 3 * width));
  proj_ = register_module("proj", nn::Linear(width, width));
}

at::Tensor ViTAttentionImpl::forward(const at::Tensor& x) {
  const auto parts = qkv_(x).unflatten(2, {3, num_heads_, -1}).permute({2, 0, 3, 1, 4}).unbind(0);
  const auto y =
      at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);  // [batch, heads, tokens, width / heads]
  return proj_(y.transpose(1, 2).flatten(2));
}

ViTBlockImpl::ViTBlockImpl(const ViTOptions& options) {
  norm1_ = register_module("norm1", layer_norm(options.width));
  attn_ = register_module("attn", std::make_shared<ViTAttentionImpl>(options.width, options.num_heads));
  norm2_ = register_module("norm2", layer_norm(options.width));
  const auto mlp = register_module("mlp", std::make_shared<detail::Names>());
  fc1_ = mlp->register_module("fc1", nn::Linear(options.width, options.mlp_ratio * options.width));
  fc2_ = mlp->register_module("fc2", nn::Linear(options.mlp_ratio * options.width, options.width));
}

at::Tensor ViTBlockImpl::forward(const at::Tensor& x) {
  const auto y = x + attn_->forward(norm1_(x));
  return y + fc2_(at::gelu(fc1_(norm2_(y))));
}

ViTImpl::ViTImpl(const ViTOptions& options) : options_(options) {
  const auto [image, patch, width, depth, heads, ratio, classes] = options;
  detail::check_that(image > 0 && patch > 0 && image % patch == 0,
                     "images of a ViT have a multiple of the patch's {} pixels on a side, not {}", patch, image);
  detail::check_that(width > 0 && heads > 0 && width % heads == 0,
                     "the width of a ViT is a multiple of its {} heads, not {}", heads, width);
  detail::check_that(depth > 0 && ratio > 0 && classes > 0,
                     "a ViT has at least one block, hidden width and class, not {}, {} and {}", depth, ratio, classes);
  const int64_t side = image / patch;
  cls_token_ = register_parameter("cls_token", at::empty({1, 1, width}));
  pos_embed_ = register_parameter("pos_embed", at::empty({1, 1 + side * side, width}));
  const auto patch_embed = register_module("patch_embed", std::make_shared<detail::Names>());
  proj_ = patch_embed->register_module("proj", nn::Conv2d(nn::Conv2dOptions(3, width, patch).stride(patch)));
  const auto blocks = register_module("blocks", std::make_shared<detail::Names>());
  for (int64_t i = 0; i < depth; ++i) {
    blocks_.push_back(blocks->register_module(std::to_string(i), train::Unit<ViTBlockImpl>(options)));
  }
  norm_ = register_module("norm", layer_norm(width));
  head_ = register_module("head", nn::Linear(width, classes));

  // timm cuts the normal distribution at -2 and 2, which with this deviation never happens.
  nn::init::normal_(cls_token_, 0, kEpsilon);
  nn::init::normal_(pos_embed_, 0, kDeviation);
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* linear = module->as<nn::Linear>()) {
      nn::init::normal_(linear->weight, 0, kDeviation);
      nn::init::zeros_(linear->bias);
    }
  }
}

at::Tensor ViTImpl::forward(const at::Tensor& x) {
  const bool fits = x.dim() == 4 && x.size(2) == options_.image_size && x.size(3) == options_.image_size;
  detail::check_that(fits, "this ViT takes images [batch, 3, {0}, {0}], not {1}", options_.image_size,
                     fits ? "" : c10::str(x.sizes()));
  auto y = proj_(x).flatten(2).transpose(1, 2);  // [batch, patches, width]
  y = at::cat({cls_token_.to(y.scalar_type()).expand({y.size(0), -1, -1}), y}, 1) + pos_embed_;
  for (auto& block : blocks_) y = block(y);
  return head_(norm_(y.select(1, 0)));  // the norm is of each token, and only the first one is used
}

std::vector<std::string> ViTImpl::fsdp_units() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < blocks_.size(); ++i) names.push_back("blocks." + std::to_string(i));
  return names;
}

train::TensorMap ViTImpl::adapted(train::TensorMap weights) const {
  auto result = timm_names(weights);
  fit_positions(result, options_);
  return result;
}

train::TensorMap timm_names(const train::TensorMap& tensors) { return renamed(tensors, /*to_torchvision=*/false); }
train::TensorMap torchvision_names(const train::TensorMap& tensors) {
  return renamed(tensors, /*to_torchvision=*/true);
}

void fit_positions(train::TensorMap& tensors, const ViTOptions& options) {
  const auto found = tensors.find("pos_embed");
  if (found == tensors.end()) return;
  auto& positions = found->second;
  const int64_t side = options.image_size / options.patch_size;
  if (positions.dim() != 3 || positions.size(1) == 1 + side * side) return;  // load_weights refuses another shape
  const int64_t from = std::llround(std::sqrt(static_cast<double>(positions.size(1) - 1)));
  detail::check_that(from > 0 && from * from == positions.size(1) - 1,
                     "pos_embed has {} positions, which are not those of square images and a class token",
                     positions.size(1));
  auto grid = positions.narrow(1, 1, from * from).reshape({1, from, from, -1}).permute({0, 3, 1, 2}).to(at::kFloat);
  grid = at::_upsample_bicubic2d_aa(grid, {side, side}, /*align_corners=*/false);
  grid = grid.permute({0, 2, 3, 1}).reshape({1, side * side, -1});
  positions = at::cat({positions.narrow(1, 0, 1).to(at::kFloat), grid}, 1);
}

}  // namespace yoke::models
