// yoke/models/resnet.h -- residual networks for images: ResNet-18, 34, 50 and their variants.
//
//     models::ResNet net(models::resnet50());                            // as torchvision.models.resnet50()
//     models::ResNet small(models::cifar_resnet18(10));                  // 32x32 images, ten classes
//     models::load_weights(models::read_weights("resnet50.pth"), *net);  // torchvision's file
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "yoke/models/image_model.h"
#include "yoke/train/shard/unit.h"

namespace yoke::models {

/// How the first layers make an image smaller.
enum class ResNetStem {
  kImageNet,  ///< A convolution of 7x7 with stride 2, then max pooling with stride 2: a quarter of each side.
  kCifar,     ///< A convolution of 3x3 with stride 1 and no pooling, for images of about 32x32.
};

struct ResNetOptions {
  std::array<int64_t, 4> depths{2, 2, 2, 2};  ///< Blocks in each of the four stages.
  bool bottleneck = false;                    ///< Three convolutions in a block instead of two; four times the outputs.
  int64_t width = 64;                         ///< Channels of the first stage; each further stage has twice as many.
  int64_t num_classes = 1000;
  ResNetStem stem = ResNetStem::kImageNet;
  /// If true, the last batch norm of each block begins with weight 0, so that each block begins as the identity. Large
  /// batches train better so; Goyal et al., 2017.
  bool zero_init_residual = false;
};

ResNetOptions resnet18(int64_t num_classes = 1000);      ///< 11.7 million parameters.
ResNetOptions resnet34(int64_t num_classes = 1000);      ///< 21.8 million parameters.
ResNetOptions resnet50(int64_t num_classes = 1000);      ///< 25.6 million parameters.
ResNetOptions cifar_resnet18(int64_t num_classes = 10);  ///< ResNet-18 with CIFAR's stem; 11.2 million parameters.

/// Two convolutions of 3x3 (torchvision's BasicBlock), or 1x1, 3x3 and 1x1 (Bottleneck, with the stride in the 3x3
/// one).
class ResidualBlockImpl : public torch::nn::Module {
 public:
  struct Options {
    int64_t in = 0;
    int64_t width = 0;  ///< Channels of the convolutions, but of a bottleneck's last one.
    int64_t stride = 1;
    bool bottleneck = false;
  };
  explicit ResidualBlockImpl(const Options& options);
  /// Maps [batch, in, height, width] to [batch, out, height / stride, width / stride].
  at::Tensor forward(const at::Tensor& x);

 private:
  friend class ResNetImpl;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr}, shortcut_conv_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr}, shortcut_bn_{nullptr};
};

/// Names      of parameters and buffers, their order and shapes are torchvision's ("layer1.0.conv1.weight", "fc.bias"),
///            which timm has, too. With the same seed the initial weights are torchvision's.
/// Sharding   each block is a Unit; fsdp_units() has their names.
/// Errors     kInvalidArgument: an option is below 1.
/// Source     He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; torchvision/models/resnet.py.
class ResNetImpl : public ImageModel {
 public:
  explicit ResNetImpl(const ResNetOptions& options);

  /// Maps images [batch, 3, height, width], float or bfloat16, in any memory format, to logits [batch, num_classes].
  at::Tensor forward(const at::Tensor& x) override;

  const ResNetOptions& options() const { return options_; }
  std::vector<std::string> fsdp_units() const override;  ///< "layer1.0", "layer1.1", ...
  std::string head() const override { return "fc"; }

 private:
  ResNetOptions options_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<std::vector<train::Unit<ResidualBlockImpl>>> stages_;
  torch::nn::Linear fc_{nullptr};
};

class ResNet : public torch::nn::ModuleHolder<ResNetImpl> {
 public:
  using ModuleHolder::ModuleHolder;
};

}  // namespace yoke::models
