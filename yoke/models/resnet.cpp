#include "yoke/models/resnet.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/init.h>

#include "yoke/models/detail/check.h"
#include "yoke/models/detail/names.h"

namespace yoke::models {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

int64_t out_channels(int64_t width, bool bottleneck) { return bottleneck ? 4 * width : width; }

}  // namespace

ResNetOptions resnet18(int64_t num_classes) { return {.num_classes = num_classes}; }
ResNetOptions resnet34(int64_t num_classes) { return {.depths = {3, 4, 6, 3}, .num_classes = num_classes}; }
ResNetOptions resnet50(int64_t num_classes) {
  return {.depths = {3, 4, 6, 3}, .bottleneck = true, .num_classes = num_classes};
}
ResNetOptions cifar_resnet18(int64_t num_classes) { return {.num_classes = num_classes, .stem = ResNetStem::kCifar}; }

// The layers are made in torchvision's order, in which they draw random numbers, and registered in its other order.
ResidualBlockImpl::ResidualBlockImpl(const Options& options) {
  const auto [in, width, stride, bottleneck] = options;
  const int64_t out = out_channels(width, bottleneck);
  if (stride != 1 || in != out) {
    shortcut_conv_ = convolution(in, out, 1, stride);
    shortcut_bn_ = nn::BatchNorm2d(out);
  }
  conv1_ = register_module("conv1", bottleneck ? convolution(in, width, 1, 1) : convolution(in, width, 3, stride));
  bn1_ = register_module("bn1", nn::BatchNorm2d(width));
  conv2_ = register_module("conv2", convolution(width, width, 3, bottleneck ? stride : 1));
  bn2_ = register_module("bn2", nn::BatchNorm2d(width));
  if (bottleneck) {
    conv3_ = register_module("conv3", convolution(width, out, 1, 1));
    bn3_ = register_module("bn3", nn::BatchNorm2d(out));
  }
  if (shortcut_conv_) {
    const auto downsample = register_module("downsample", std::make_shared<detail::Names>());
    downsample->register_module("0", shortcut_conv_);
    downsample->register_module("1", shortcut_bn_);
  }
}

at::Tensor ResidualBlockImpl::forward(const at::Tensor& x) {
  auto y = bn1_(conv1_(x)).relu_();
  y = bn2_(conv2_(y));
  if (conv3_) y = bn3_(conv3_(y.relu_()));
  y += shortcut_conv_ ? shortcut_bn_(shortcut_conv_(x)) : x;
  return y.relu_();
}

ResNetImpl::ResNetImpl(const ResNetOptions& options) : options_(options) {
  detail::check_that(options.num_classes > 0 && options.width > 0,
                     "a ResNet has at least one class and one channel, not {} and {}", options.num_classes,
                     options.width);
  const bool is_small = options.stem == ResNetStem::kCifar;
  conv1_ =
      register_module("conv1", is_small ? convolution(3, options.width, 3, 1) : convolution(3, options.width, 7, 2));
  bn1_ = register_module("bn1", nn::BatchNorm2d(options.width));
  int64_t in = options.width, width = options.width;
  for (size_t stage = 0; stage < options.depths.size(); ++stage, width *= 2) {
    detail::check_that(options.depths[stage] > 0, "a stage of a ResNet has at least one block, not {}",
                       options.depths[stage]);
    const auto layer = register_module("layer" + std::to_string(stage + 1), std::make_shared<detail::Names>());
    auto& blocks = stages_.emplace_back();
    for (int64_t i = 0; i < options.depths[stage]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      blocks.push_back(layer->register_module(
          std::to_string(i),
          train::Unit<ResidualBlockImpl>(ResidualBlockImpl::Options{in, width, stride, options.bottleneck})));
      in = out_channels(width, options.bottleneck);
    }
  }
  fc_ = register_module("fc", nn::Linear(in, options.num_classes));

  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<nn::Conv2d>()) {
      nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }
  if (!options.zero_init_residual) return;
  for (auto& blocks : stages_) {
    for (auto& block : blocks) nn::init::zeros_((block->conv3_ ? block->bn3_ : block->bn2_)->weight);
  }
}

at::Tensor ResNetImpl::forward(const at::Tensor& x) {
  auto y = bn1_(conv1_(x)).relu_();
  if (options_.stem == ResNetStem::kImageNet) y = at::max_pool2d(y, {3, 3}, {2, 2}, {1, 1});
  for (auto& blocks : stages_) {
    for (auto& block : blocks) y = block(y);
  }
  return fc_(at::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
}

std::vector<std::string> ResNetImpl::fsdp_units() const {
  std::vector<std::string> names;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    for (size_t i = 0; i < stages_[stage].size(); ++i) {
      names.push_back("layer" + std::to_string(stage + 1) + "." + std::to_string(i));
    }
  }
  return names;
}

}  // namespace yoke::models
