// yoke/models/vit.h -- vision transformers: ViT-Ti/16, ViT-S/16, ViT-B/16 and smaller ones.
//
//     models::ViT net(models::vit_small());                           // as timm's vit_small_patch16_224
//     models::load_weights(net->adapted(models::read_weights("vit.safetensors")), *net);
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/models/image_model.h"
#include "yoke/train/named_tensors.h"
#include "yoke/train/shard/unit.h"

namespace yoke::models {

struct ViTOptions {
  int64_t image_size = 224;  ///< Height and width of the images; a multiple of patch_size.
  int64_t patch_size = 16;   ///< Height and width of a patch, which becomes one token.
  int64_t width = 384;       ///< Of a token; a multiple of num_heads.
  int64_t depth = 12;        ///< Number of blocks.
  int64_t num_heads = 6;
  int64_t mlp_ratio = 4;  ///< The hidden width of a block's two linear layers, in units of `width`.
  int64_t num_classes = 1000;
};

ViTOptions vit_tiny(int64_t num_classes = 1000);   ///< ViT-Ti/16, 5.7 million parameters.
ViTOptions vit_small(int64_t num_classes = 1000);  ///< ViT-S/16, 22.1 million parameters.
ViTOptions vit_base(int64_t num_classes = 1000);   ///< ViT-B/16, 86.6 million parameters.

/// Attention of each token to all tokens, in several heads. Maps [batch, tokens, width] to the same shape.
class ViTAttentionImpl : public torch::nn::Module {
 public:
  ViTAttentionImpl(int64_t width, int64_t num_heads);
  at::Tensor forward(const at::Tensor& x);

 private:
  int64_t num_heads_;
  torch::nn::Linear qkv_{nullptr}, proj_{nullptr};
};

/// Attention and two linear layers, each after a layer norm and beside a residual connection.
class ViTBlockImpl : public torch::nn::Module {
 public:
  explicit ViTBlockImpl(const ViTOptions& options);
  at::Tensor forward(const at::Tensor& x);  ///< Maps [batch, tokens, width] to the same shape.

 private:
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  std::shared_ptr<ViTAttentionImpl> attn_;
  torch::nn::Linear fc1_{nullptr}, fc2_{nullptr};
};

/// Names      of parameters, their order and shapes are timm's VisionTransformer's ("blocks.0.attn.qkv.weight",
///            "head.bias"), because timm has weights of all these sizes. timm_names and torchvision_names convert
///            files.
/// Sharding   each block is a Unit; fsdp_units() has their names.
/// Errors     kInvalidArgument: an option is below 1, or not a multiple as ViTOptions says; of forward: an image of
///            another size.
/// Source     Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021; timm/models/vision_transformer.py. The
///            first weights have timm's distributions: deviations of 0.02 for linear layers and positions.
class ViTImpl : public ImageModel {
 public:
  explicit ViTImpl(const ViTOptions& options);

  /// Maps images [batch, 3, image_size, image_size], float or bfloat16, in any memory format, to logits
  /// [batch, num_classes].
  at::Tensor forward(const at::Tensor& x) override;

  const ViTOptions& options() const { return options_; }
  std::vector<std::string> fsdp_units() const override;  ///< "blocks.0", "blocks.1", ...
  std::string head() const override { return "head"; }
  train::TensorMap adapted(train::TensorMap weights) const override;  ///< timm_names, then fit_positions.

 private:
  ViTOptions options_;
  at::Tensor cls_token_;  ///< [1, 1, width]
  at::Tensor pos_embed_;  ///< [1, 1 + patches, width]
  torch::nn::Conv2d proj_{nullptr};
  std::vector<train::Unit<ViTBlockImpl>> blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};

class ViT : public torch::nn::ModuleHolder<ViTImpl> {
 public:
  using ModuleHolder::ModuleHolder;
};

/// Renames the tensors of torchvision's VisionTransformer (vit_b_16 and others, also before torchvision 0.14) to the
/// names here. Other names stay, so that files of both libraries may be given.
train::TensorMap timm_names(const train::TensorMap& tensors);
/// The other direction: names that torchvision's load_state_dict(strict=True) takes.
train::TensorMap torchvision_names(const train::TensorMap& tensors);

/// Resizes "pos_embed" for images of `image_size`, if it is of another size: bicubic with antialiasing, as timm does.
/// Errors  kInvalidArgument: it does not belong to square images.
void fit_positions(train::TensorMap& tensors, const ViTOptions& options);

}  // namespace yoke::models
