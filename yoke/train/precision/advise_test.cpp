#include "yoke/train/precision/advise.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "yoke/base/error.h"
#include "yoke/train/precision/autocast.h"

namespace yoke::train::precision {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Net : torch::nn::Module {
  Net() {
    register_module("stem", stem);
    register_module("norm", norm);
    register_module("body", body);
    register_module("depthwise", depthwise);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) {
    auto y = depthwise->forward(body->forward(norm->forward(stem->forward(x)).relu()));
    y = dropout->forward(y.mean({2, 3}));
    return head->forward(y);
  }
  torch::nn::Conv2d stem{torch::nn::Conv2dOptions(3, 16, 3).padding(1)};
  torch::nn::BatchNorm2d norm{16};
  torch::nn::Conv2d body{torch::nn::Conv2dOptions(16, 32, 3).stride(2)};
  torch::nn::Conv2d depthwise{torch::nn::Conv2dOptions(32, 32, 3).groups(32)};
  torch::nn::Dropout dropout{0.5};
  torch::nn::Linear head{32, 10};
};

TEST(Advise, NamesTheLayersThatMissAndWhy) {
  Net net;
  const auto advice = advise(net, at::randn({8, 3, 12, 12}), {.repetitions = 2});
  EXPECT_TRUE(advice.has_backward);
  EXPECT_GT(advice.step_milliseconds, 0);
  ASSERT_EQ(advice.layers.size(), 4u);
  const auto &stem = advice.layers[0], &body = advice.layers[1], &depthwise = advice.layers[2],
             &head = advice.layers[3];

  EXPECT_EQ(stem.product.layer, "stem");
  EXPECT_EQ(stem.product.operation, "conv2d");
  EXPECT_EQ(stem.product.dtype, at::kBFloat16);  // the kernel's dtype, not the weight's
  EXPECT_THAT(stem.product.input, ElementsAre(8, 3, 12, 12));
  EXPECT_THAT(stem.product.padding, ElementsAre(1, 1));
  EXPECT_FALSE(stem.product.input_needs_grad);
  EXPECT_TRUE(stem.product.weight_needs_grad);
  EXPECT_FALSE(stem.fits);
  EXPECT_EQ(stem.reason, "3 input channels: not a multiple of 8");
  EXPECT_THAT(stem.padded_input, ElementsAre(8, 8, 12, 12));
  EXPECT_THAT(stem.padded_weight, ElementsAre(16, 8, 3, 3));
  EXPECT_GT(stem.padded_milliseconds, 0);

  EXPECT_EQ(body.product.layer, "body");
  EXPECT_TRUE(body.fits);
  EXPECT_TRUE(body.product.input_needs_grad);
  EXPECT_THAT(body.padded_input, IsEmpty());
  EXPECT_EQ(body.padded_milliseconds, 0);

  EXPECT_THAT(depthwise.reason, HasSubstr("depthwise"));
  EXPECT_FALSE(depthwise.fits);

  EXPECT_EQ(head.product.layer, "head");
  EXPECT_EQ(head.product.operation, "addmm");
  EXPECT_EQ(head.product.dtype, at::kBFloat16);
  EXPECT_TRUE(head.product.weight_is_transposed);
  EXPECT_EQ(head.reason, "10 output features: not a multiple of 8");
  EXPECT_THAT(head.padded_weight, ElementsAre(32, 16));

  double shares = 0;
  for (const auto& layer : advice.layers) shares += layer.share;
  EXPECT_GT(shares, 0);
  EXPECT_THAT(to_text(advice), AllOf(HasSubstr("cpu"), HasSubstr("no tensor cores"), HasSubstr("10 output features"),
                                     HasSubstr("then ms")));
}

TEST(Advise, LeavesTheModelAsItWas) {
  Net net;
  const auto x = at::randn({4, 3, 12, 12});
  net.forward(x).sum().backward();
  const auto gradient = net.head->weight.grad(), values = gradient.clone(), mean = net.norm->running_mean.clone();
  at::manual_seed(3);
  const auto expected = at::randn({4});
  at::manual_seed(3);
  advise(net, x, {.repetitions = 1});
  EXPECT_TRUE(at::equal(at::randn({4}), expected));
  EXPECT_TRUE(net.head->weight.grad().is_same(gradient));
  EXPECT_TRUE(at::equal(gradient, values));
  EXPECT_TRUE(at::equal(net.norm->running_mean, mean));
  EXPECT_EQ(net.norm->num_batches_tracked.item<int64_t>(), 1);
}

TEST(Advise, AsksForTheBatchInTrainingOnly) {
  torch::nn::Linear layer(16, 8);
  const auto x = at::randn({3, 16});
  const auto training = advise(*layer, x, {.repetitions = 1});
  EXPECT_EQ(training.layers.at(0).reason, "3 rows (the batch): not a multiple of 8");
  EXPECT_THAT(training.layers[0].padded_input, ElementsAre(8, 16));
  const at::NoGradGuard no_grad;
  const auto inference = advise(*layer, x, {.repetitions = 1});
  EXPECT_FALSE(inference.has_backward);
  EXPECT_TRUE(inference.layers.at(0).fits);
}

TEST(Advise, SaysWhatIsComputedInAnotherDtype) {
  torch::nn::Linear layer(16, 8);
  layer->to(at::kDouble);
  EXPECT_EQ(
      advise(*layer, at::randn({8, 16}, at::kDouble), {.dtype = at::kFloat, .repetitions = 1}).layers.at(0).reason,
      "computed in Double");

  EXPECT_EQ(tensor_core_multiple(at::kHalf, false), 8);
  EXPECT_EQ(tensor_core_multiple(at::kFloat, true), 4);
  EXPECT_EQ(tensor_core_multiple(at::kFloat, false), 0);
  EXPECT_EQ(tensor_core_multiple(at::kChar, false), 16);
}

TEST(Products, AreThoseOfTheKernelsWithTheirLayers) {
  torch::nn::Linear layer(6, 4);
  const auto x = at::randn({2, 5, 6}), q = at::randn({2, 3, 7, 12});
  const auto products = observe(*layer, [&] {
    const Autocast autocast({.dtype = at::kHalf});
    for (int i = 0; i < 3; ++i) layer->forward(x);
    at::matmul(x, layer->weight.t());  // the parameter must be recognised although it is transposed
    at::bmm(x, x.transpose(1, 2));
    at::bmm(x.transpose(1, 2), x);
    at::bmm(x, x.transpose(1, 2));
    at::scaled_dot_product_attention(q, q, q, {}, 0.0, /*is_causal=*/true);
    {
      const Autocast off({.enabled = false});
      layer->forward(x[0]);
    }
  });
  std::vector<std::string> seen;
  for (const auto& product : products) {
    seen.push_back(product.layer + " / " + product.operation + " / " + c10::toString(product.dtype) + " / " +
                   std::to_string(product.calls));
  }
  EXPECT_THAT(seen, ElementsAre("weight / matmul / Half / 4", "bmm 1 / bmm / Half / 2", "bmm 2 / bmm / Half / 1",
                                "scaled_dot_product_attention 1 / scaled_dot_product_attention / Half / 1",
                                "weight / addmm / Float / 1"));
  EXPECT_EQ(products[3].kind, Product::Kind::kAttention);
  EXPECT_TRUE(products[3].is_causal);
  EXPECT_TRUE(observe(*layer, [] {}).empty());
}

struct SharedHeads : torch::nn::Module {
  SharedHeads() { register_module("query", query); }
  at::Tensor forward(const at::Tensor& x) {  // [batch, length, 8]
    const auto heads = query->forward(x).view({x.size(0), x.size(1), 4, 2}).transpose(1, 2);
    const auto shared = heads.narrow(1, 0, 2);  // two key and value heads for four query heads
    return at::scaled_dot_product_attention(heads, shared, shared, {}, 0.0, true, {}, /*enable_gqa=*/true);
  }
  torch::nn::Linear query{8, 8};
};

TEST(Advise, MeasuresAttentionWhoseHeadsShareKeys) {
  SharedHeads model;
  const auto advice = advise(model, at::randn({2, 5, 8}), {.repetitions = 1});
  EXPECT_EQ(advice.layers.back().product.kind, Product::Kind::kAttention);
  EXPECT_GT(advice.layers.back().milliseconds, 0);
}

TEST(Advise, RefusesToMeasureNothing) {
  torch::nn::Linear layer(4, 4);
  EXPECT_THROW(advise(*layer, at::ones({2, 4}), {.repetitions = 0}), Error);
}

TEST(Judge, PadsGroupsEachForThemselves) {
  LayerAdvice grouped{
      .product = {.kind = Product::Kind::kConvolution, .input = {2, 12, 8, 8}, .weight = {24, 6, 3, 3}, .groups = 2}};
  judge(grouped, 8);
  EXPECT_EQ(grouped.reason, "6 input channels, 12 output channels: not multiples of 8");
  EXPECT_THAT(grouped.padded_input, ElementsAre(2, 16, 8, 8));
  EXPECT_THAT(grouped.padded_weight, ElementsAre(32, 8, 3, 3));

  LayerAdvice transposed{
      .product = {
          .kind = Product::Kind::kConvolution, .input = {2, 12, 8, 8}, .weight = {12, 3, 2, 2}, .is_transposed = true}};
  judge(transposed, 8);
  EXPECT_THAT(transposed.padded_input, ElementsAre(2, 16, 8, 8));
  EXPECT_THAT(transposed.padded_weight, ElementsAre(16, 8, 2, 2));

  LayerAdvice vocabulary{.product = {.input = {512, 768}, .weight = {768, 50257}, .weight_needs_grad = true}};
  judge(vocabulary, 8);
  EXPECT_THAT(vocabulary.padded_weight, ElementsAre(768, 50264));
  EXPECT_THAT(vocabulary.padded_input, ElementsAre(512, 768));
}

}  // namespace
}  // namespace yoke::train::precision
