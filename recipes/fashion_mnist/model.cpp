#include "recipes/fashion_mnist/model.h"

#include <ATen/ops/max_pool2d.h>

namespace fashion_mnist {
namespace {

namespace nn = torch::nn;

nn::Conv2d conv3x3(int64_t in, int64_t out) { return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false)); }

}  // namespace

Network::Network() {  // one statement per layer fixes the order in which layers draw random numbers
  conv1_ = register_module("conv1", conv3x3(1, 16));
  norm1_ = register_module("norm1", nn::BatchNorm2d(16));
  conv2_ = register_module("conv2", conv3x3(16, 48));
  norm2_ = register_module("norm2", nn::BatchNorm2d(48));
  hidden_ = register_module("hidden", nn::Linear(nn::LinearOptions(48 * 7 * 7, 128).bias(false)));
  norm3_ = register_module("norm3", nn::BatchNorm1d(128));
  output_ = register_module("output", nn::Linear(128, 10));
}

at::Tensor Network::forward(const at::Tensor& x) {
  auto y = norm1_(at::max_pool2d(conv1_(x), {2, 2})).relu_();  // [batch, 16, 14, 14]
  y = norm2_(at::max_pool2d(conv2_(y), {2, 2})).relu_();       // [batch, 48, 7, 7]
  y = y.permute({0, 2, 3, 1}).flatten(1);                      // [batch, 2352]; in channels_last a view, not a copy
  y = norm3_(hidden_(y)).relu_();                              // [batch, 128]
  return output_(y);
}

}  // namespace fashion_mnist
