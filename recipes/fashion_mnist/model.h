// recipes/fashion_mnist/model.h -- a small convolutional network for 28x28 grey images.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace fashion_mnist {

/// Two convolutions, each followed by pooling and then batch norm (a quarter of the cost of the opposite order), and
/// two linear layers. 309,786 parameters. The first layer is narrow because it has the most pixels.
class Network : public torch::nn::Module {
 public:
  Network();
  /// Maps x [batch, 1, 28, 28] in channels_last, float or bfloat16, to logits [batch, 10].
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d norm1_{nullptr}, norm2_{nullptr};
  torch::nn::Linear hidden_{nullptr}, output_{nullptr};
  torch::nn::BatchNorm1d norm3_{nullptr};
};

}  // namespace fashion_mnist
