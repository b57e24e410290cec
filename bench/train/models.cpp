#include "bench/train/models.h"

#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <functional>
#include <map>

#include "yoke/base/error.h"
#include "yoke/train/shard/unit.h"

namespace yoke::bench {
namespace {

namespace nn = torch::nn;
using at::Tensor;

class Classifier : public Model {
 public:
  Classifier(std::vector<int64_t> input, int64_t num_classes) : input_(std::move(input)), num_classes_(num_classes) {}
  virtual Tensor logits(const Tensor& x) = 0;
  Tensor forward(const Tensor& x, const Tensor& y) override { return torch::cross_entropy_loss(logits(x), y); }
  Batch make_batch() const override {
    const auto x = torch::randn(input_);
    return {x, torch::randint(num_classes_, {input_[0]}, torch::kLong)};
  }

 private:
  std::vector<int64_t> input_;  ///< [batch, ...]
  int64_t num_classes_;
};

class Mlp : public Classifier {
 public:
  explicit Mlp(const std::vector<int64_t>& widths) : Classifier({64, widths.front()}, widths.back()) {
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      layers_.push_back(register_module(std::to_string(2 * i), nn::Linear(widths[i], widths[i + 1])));
    }
  }
  Tensor logits(const Tensor& input) override {
    auto x = input;
    for (size_t i = 0; i < layers_.size(); ++i) {
      x = layers_[i](x);
      if (i + 1 < layers_.size()) x = torch::relu(x);
    }
    return x;
  }

 private:
  std::vector<nn::Linear> layers_;
};

class Cnn : public Classifier {
 public:
  Cnn() : Classifier({64, 1, 28, 28}, 10) {
    conv1_ = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 32, 3)));
    conv2_ = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(32, 64, 3)));
    linear1_ = register_module("linear1", nn::Linear(1600, 256));
    linear2_ = register_module("linear2", nn::Linear(256, 10));
  }
  Tensor logits(const Tensor& input) override {
    auto x = torch::max_pool2d(torch::relu(conv1_(input)), 2);
    x = torch::max_pool2d(torch::relu(conv2_(x)), 2);
    return linear2_(torch::relu(linear1_(x.flatten(1))));
  }

 private:
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  nn::Linear linear1_{nullptr}, linear2_{nullptr};
};

nn::Conv2d conv3x3(int64_t in, int64_t out, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false));
}

class ResidualBlock : public nn::Module {
 public:
  ResidualBlock(int64_t in, int64_t out, int64_t stride) {
    conv1_ = register_module("conv1", conv3x3(in, out, stride));
    norm1_ = register_module("norm1", nn::BatchNorm2d(out));
    conv2_ = register_module("conv2", conv3x3(out, out, 1));
    norm2_ = register_module("norm2", nn::BatchNorm2d(out));
    if (stride == 1 && in == out) return;
    short_conv_ = register_module("short_conv", nn::Conv2d(nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)));
    short_norm_ = register_module("short_norm", nn::BatchNorm2d(out));
  }
  Tensor forward(const Tensor& x) {
    auto y = torch::relu(norm1_(conv1_(x)));
    y = norm2_(conv2_(y));
    return torch::relu(y + (short_conv_.is_empty() ? x : short_norm_(short_conv_(x))));
  }

 private:
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, short_conv_{nullptr};
  nn::BatchNorm2d norm1_{nullptr}, norm2_{nullptr}, short_norm_{nullptr};
};

/// ResNet-20 (He et al., 2015) for images of 32 x 32: three stages of three blocks.
class ResNet20 : public Classifier {
 public:
  ResNet20() : Classifier({32, 3, 32, 32}, 10) {
    conv_ = register_module("conv", conv3x3(3, 16, 1));
    norm_ = register_module("norm", nn::BatchNorm2d(16));
    int64_t in = 16;
    for (int64_t i = 0; i < 9; ++i) {
      const int64_t out = int64_t{16} << (i / 3);
      blocks_.push_back(register_module(fmt::format("block{}", i),
                                        std::make_shared<ResidualBlock>(in, out, i > 0 && i % 3 == 0 ? 2 : 1)));
      in = out;
    }
    linear_ = register_module("linear", nn::Linear(64, 10));
  }
  Tensor logits(const Tensor& input) override {
    auto x = torch::relu(norm_(conv_(input)));
    for (const auto& block : blocks_) x = block->forward(x);
    return linear_(x.mean({2, 3}));
  }

 private:
  nn::Conv2d conv_{nullptr};
  nn::BatchNorm2d norm_{nullptr};
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  nn::Linear linear_{nullptr};
};

constexpr int64_t kWidth = 128, kHeads = 4, kLength = 64, kVocabulary = 1000, kSequences = 8;

class TransformerBlock : public nn::Module {
 public:
  TransformerBlock() {
    norm1_ = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
    qkv_ = register_module("qkv", nn::Linear(kWidth, 3 * kWidth));
    out_ = register_module("out", nn::Linear(kWidth, kWidth));
    norm2_ = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
    up_ = register_module("up", nn::Linear(kWidth, 4 * kWidth));
    down_ = register_module("down", nn::Linear(4 * kWidth, kWidth));
  }
  Tensor forward(const Tensor& x) {  // [sequences, length, width]
    const auto qkv = qkv_(norm1_(x)).view({x.size(0), x.size(1), 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const auto attended = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, /*is_causal=*/true);
    const auto y = x + out_(attended.transpose(1, 2).reshape(x.sizes()));
    return y + down_(torch::gelu(up_(norm2_(y))));
  }

 private:
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  nn::Linear qkv_{nullptr}, out_{nullptr}, up_{nullptr}, down_{nullptr};
};

/// A causal language model: four blocks, about 1 M parameters.
class Transformer : public Model {
 public:
  Transformer() {
    tokens_ = register_module("tokens", nn::Embedding(kVocabulary, kWidth));
    positions_ = register_module("positions", nn::Embedding(kLength, kWidth));
    for (int64_t i = 0; i < 4; ++i) {
      blocks_.push_back(register_module(fmt::format("block{}", i), yoke::train::Unit<TransformerBlock>()));
    }
    norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
    head_ = register_module("head", nn::Linear(kWidth, kVocabulary));
  }
  Tensor forward(const Tensor& tokens, const Tensor& y) override {
    auto x = tokens_(tokens) + positions_(torch::arange(kLength, tokens.options()));
    for (auto& block : blocks_) x = block(x);
    return torch::cross_entropy_loss(head_(norm_(x)).view({-1, kVocabulary}), y.reshape({-1}));
  }
  std::vector<std::string> units() const override { return {"block0", "block1", "block2", "block3"}; }
  Batch make_batch() const override {
    const auto text = torch::randint(kVocabulary, {kSequences, kLength + 1}, torch::kLong);
    return {text.narrow(1, 0, kLength), text.narrow(1, 1, kLength)};
  }

 private:
  nn::Embedding tokens_{nullptr}, positions_{nullptr};
  std::vector<yoke::train::Unit<TransformerBlock>> blocks_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear head_{nullptr};
};

using Maker = std::function<std::shared_ptr<Model>()>;
const std::vector<std::pair<std::string, Maker>>& makers() {
  static const std::vector<std::pair<std::string, Maker>> all = {
      {"mlp",
       [] {
         return std::make_shared<Mlp>(std::vector<int64_t>{64, 64, 64, 10});
       }},
      {"mlp1024",
       [] {
         return std::make_shared<Mlp>(std::vector<int64_t>{1024, 1024, 1024, 10});
       }},
      {"cnn", [] { return std::make_shared<Cnn>(); }},
      {"resnet20", [] { return std::make_shared<ResNet20>(); }},
      {"transformer", [] { return std::make_shared<Transformer>(); }},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const auto names = [] {
    std::vector<std::string> all;
    for (const auto& [name, maker] : makers()) all.push_back(name);
    return all;
  }();
  return names;
}

std::shared_ptr<Model> make_model(const std::string& name) {
  for (const auto& [one, maker] : makers()) {
    if (one == name) return maker();
  }
  throw Error(ErrorCode::kInvalidArgument, "no model '{}'; there are: {}", name, fmt::join(model_names(), ", "));
}

}  // namespace yoke::bench
