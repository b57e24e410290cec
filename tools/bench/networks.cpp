#include "tools/bench/networks.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/seed.h"

namespace yoke::exercise {
namespace {

constexpr int64_t kMaxTokens = 4096;  ///< Larger token numbers are reduced modulo this, so that networks stay small.

/// Flattens images for networks without convolutions. Larger images are first shrunk to `side` x `side` pixels.
at::Tensor flat(const at::Tensor& x, int64_t side) {
  if (x.dim() != 4 || x.size(2) * x.size(3) <= side * side) return x.flatten(1);
  return at::adaptive_avg_pool2d(x, {side, side}).flatten(1);
}

int64_t flat_size(const std::vector<int64_t>& sizes, int64_t side) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  if (sizes.size() != 3 || sizes[1] * sizes[2] <= side * side) return count;
  return sizes[0] * side * side;
}

}  // namespace

at::Tensor Training::parameter(std::vector<int64_t> sizes) {
  const auto fan_in =
      static_cast<double>(std::max<int64_t>(1, sizes.size() < 2 ? 1 : c10::multiply_integers(sizes) / sizes[0]));
  auto values = at::randn(sizes).mul_(sizes.size() < 2 ? 0 : std::sqrt(1 / fan_in)).to(options_.device);
  values.requires_grad_();
  parameters_.emplace_back(std::to_string(parameters_.size()), values);
  return values;
}

Training::Training(const NetworkOptions& options) : options_(options) {
  train::seed({.seed = 1});
  const auto linear = [this](int64_t in, int64_t out) {
    return [weight = parameter({out, in}), bias = parameter({out})](const at::Tensor& x) {
      return at::linear(x, weight, bias);
    };
  };
  const auto convolution = [this](int64_t in, int64_t out) {
    return [weight = parameter({out, in, 3, 3}), bias = parameter({out})](const at::Tensor& x) {
      return at::max_pool2d(at::relu(at::conv2d(x, weight, bias, 1, 1)), 2);
    };
  };
  const auto& sizes = options_.sample_sizes;
  const auto classes = options_.num_classes;
  if (options_.has_tokens) {
    if (options_.name == "cnn") {
      throw Error(ErrorCode::kInvalidArgument,
                  "the cnn takes images, and these data are tokens; give --model mlp or small");
    }
    const int64_t width = options_.name == "mlp" ? 128 : 16;
    forward_ = [table = parameter({kMaxTokens, width}), hidden = linear(width, 2 * width),
                out = linear(2 * width, kMaxTokens)](const at::Tensor& x) {
      return out(at::relu(hidden(at::embedding(table, x.remainder(kMaxTokens))))).flatten(0, 1);
    };
  } else if (options_.name == "cnn") {
    if (sizes.size() != 3 || std::min(sizes[1], sizes[2]) < 8) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the cnn takes images of at least 8 x 8 pixels; give --model mlp or small");
    }
    forward_ = [one = convolution(sizes[0], 16), two = convolution(16, 32),
                out = linear(32 * 16, classes)](const at::Tensor& x) {
      return out(at::adaptive_avg_pool2d(two(one(x)), {4, 4}).flatten(1));
    };
  } else if (options_.name == "mlp") {
    constexpr int64_t kSide = 32, kWidth = 1024;
    forward_ = [one = linear(flat_size(sizes, kSide), kWidth), two = linear(kWidth, kWidth),
                out = linear(kWidth, classes)](const at::Tensor& x) {
      return out(at::relu(two(at::relu(one(flat(x, kSide))))));
    };
  } else {
    constexpr int64_t kSide = 8, kWidth = 16;
    forward_ = [one = linear(flat_size(sizes, kSide), kWidth), out = linear(kWidth, classes)](const at::Tensor& x) {
      return out(at::relu(one(flat(x, kSide))));
    };
  }
  optimizer_ = std::make_unique<train::Sgd>(parameters_, train::SgdOptions{.lr = 1e-3, .momentum = 0.9});
}

at::Tensor Training::step(const train::Batch& batch, bool is_mixed) {
  at::Tensor loss;
  {
    const train::Autocast autocast({.device_type = options_.device.type(), .enabled = is_mixed});
    const auto target = options_.has_tokens ? batch.target.remainder(kMaxTokens).flatten() : batch.target;
    loss = at::cross_entropy_loss(forward_(batch.data), target);
  }
  loss.backward();
  optimizer_->step();
  optimizer_->zero_grad();
  return loss.detach();
}

train::Batch random_images(int64_t batch_size, c10::Device device) {
  return {at::randn({batch_size, 1, 28, 28}).to(device),
          at::randint(10, {batch_size}, at::TensorOptions().dtype(at::kLong)).to(device)};
}

}  // namespace yoke::exercise
