#include "yoke/train/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/linear.h>

#include "fakes/run_ranks.h"
#include "fakes/tensor_bytes.h"
#include "yoke/base/error.h"
#include "yoke/dist/gradient.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/precision/autocast.h"

namespace yoke::train {
namespace {

namespace nn = torch::nn;

struct Deep : nn::Module {
  std::vector<nn::Linear> layers;
  double dropout = 0;
  bool keep = true;  ///< Keep activations instead of recomputing them.

  explicit Deep(int depth = 4, int64_t width = 16) {
    layers = fakes::make_seeded(0, [&] {
      std::vector<nn::Linear> made;
      for (int i = 0; i < depth; ++i) made.push_back(register_module(std::to_string(i), nn::Linear(width, width)));
      return made;
    });
  }

  at::Tensor block(size_t i, const at::Tensor& x) {
    const auto y = nn::functional::dropout(torch::relu(layers[i](x)), nn::functional::DropoutFuncOptions().p(dropout));
    return x + torch::tanh(y) * torch::sigmoid(y);
  }

  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < layers.size(); ++i) {
      x = keep ? block(i, x) : recompute([this, i](const at::Tensor& input) { return block(i, input); }, x);
    }
    return x;
  }
};

std::vector<at::Tensor> gradients_of(Deep& model, const at::Tensor& x) {
  model.zero_grad();
  x.mutable_grad().reset();
  torch::manual_seed(7);
  model.forward(x).to(torch::kFloat).square().mean().backward();
  // The random numbers show whether both ways leave the generator in the same state.
  std::vector<at::Tensor> result = {x.grad(), torch::rand({3})};
  for (const auto& parameter : model.parameters()) result.push_back(parameter.grad());
  return result;
}

void expect_equal_gradients(Deep& model, const at::Tensor& x) {
  model.keep = true;
  const auto kept = gradients_of(model, x);
  model.keep = false;
  const auto recomputed = gradients_of(model, x);
  for (size_t i = 0; i < kept.size(); ++i) {
    ASSERT_EQ(kept[i].defined(), recomputed[i].defined()) << i;
    if (!kept[i].defined()) continue;
    EXPECT_TRUE(torch::equal(kept[i], recomputed[i])) << i;
  }
}

TEST(Recompute, ChangesNoBitOfAnyGradient) {
  Deep model;
  expect_equal_gradients(model, torch::randn({8, 16}).requires_grad_(true));
  expect_equal_gradients(model, torch::randn({8, 16}));  // the first block's input needs no gradient
  model.layers[1]->weight.set_requires_grad(false);
  expect_equal_gradients(model, torch::randn({8, 16}));
}

TEST(Recompute, RepeatsTheSameDropout) {
  Deep model;
  model.dropout = 0.5;
  expect_equal_gradients(model, torch::randn({8, 16}).requires_grad_(true));
}

TEST(Recompute, RepeatsAutocast) {
  Deep model;
  const auto x = torch::randn({8, 16});
  std::vector<at::ScalarType> seen;
  {
    const Autocast autocast({.device_type = at::kCPU, .dtype = at::kBFloat16});
    expect_equal_gradients(model, x);
  }
  at::Tensor loss;
  {
    const Autocast autocast({.device_type = at::kCPU, .dtype = at::kBFloat16});
    loss = recompute(
               [&](const at::Tensor& input) {
                 const auto y = model.layers[0](input);
                 seen.push_back(y.scalar_type());
                 return y;
               },
               x)
               .sum();
    // Autocast caches casts. A cached cast from recompute's first call would have no graph, and the weight would get no
    // gradient.
    model.zero_grad();
    model.layers[0](x).sum().backward();
    EXPECT_TRUE(model.layers[0]->weight.grad().defined());
  }
  loss.backward();  // outside of the Autocast
  EXPECT_EQ(seen, (std::vector<at::ScalarType>{at::kBFloat16, at::kBFloat16}));
  EXPECT_EQ(model.layers[0](x).scalar_type(), at::kFloat) << "and as it was afterwards";
}

TEST(Recompute, LeavesNoCastsToTheNextAutocast) {
  nn::Linear layer(4, 4);
  const auto x = torch::randn({2, 4});
  const auto output = [&] {
    const Autocast autocast({.device_type = at::kCPU, .dtype = at::kBFloat16});
    return recompute([&](const at::Tensor& input) { return layer(input); }, x).to(at::kFloat);
  };
  output().sum().backward();
  {
    const torch::NoGradGuard no_grad;
    layer->weight.zero_();
    layer->bias.fill_(3);
  }
  EXPECT_TRUE(torch::equal(output(), torch::full({2, 4}, 3.0))) << "of the weights as they are now";
}

TEST(Recompute, TakesSeveralInputsAndGivesSeveralOutputs) {
  const auto run = [](bool keep) {
    const auto a = torch::arange(6).to(torch::kFloat).view({2, 3}).requires_grad_(true);
    const auto b = torch::full({2, 3}, 0.5).requires_grad_(true);
    const auto index = torch::tensor({1, 0});
    const TensorFunction function = [](const std::vector<at::Tensor>& in) {
      return std::vector<at::Tensor>{in[0] * in[1], in[2] + 1, in[0].index_select(0, in[2]), in[1].detach() * 2, in[0]};
    };
    const std::vector<at::Tensor> inputs = {a, b, index};
    const auto out = keep ? function(inputs) : recompute(function, inputs);
    EXPECT_TRUE(torch::equal(out[1], torch::tensor({2, 1})));
    EXPECT_FALSE(out[1].requires_grad());
    (out[0].sum() + (out[2] * out[3]).sum()).backward();  // no gradient goes through the last output
    return std::vector<at::Tensor>{a.grad(), b.grad()};
  };
  const auto kept = run(true), recomputed = run(false);
  EXPECT_TRUE(torch::equal(kept[0], recomputed[0]));
  EXPECT_TRUE(torch::equal(kept[1], recomputed[1]));
}

TEST(Recompute, NestsAndRunsAsItIsWithoutGradients) {
  nn::Linear layer(4, 4);
  int calls = 0;
  const auto inner = [&](const at::Tensor& x) {
    ++calls;
    return torch::tanh(layer(x));
  };
  const auto outer = [&](const at::Tensor& x) { return recompute(inner, x) * 2; };
  const auto x = torch::randn({2, 4});
  {
    const torch::NoGradGuard no_grad;
    recompute(outer, x);
    EXPECT_EQ(std::exchange(calls, 0), 1);
  }
  recompute(outer, x).sum().backward();
  EXPECT_EQ(calls, 3);
  const auto nested = layer->weight.grad().clone();
  layer->zero_grad();
  (torch::tanh(layer(x)) * 2).sum().backward();
  EXPECT_TRUE(torch::equal(nested, layer->weight.grad()));
}

TEST(Recompute, RefusesWhatCannotWork) {
  nn::Linear layer(4, 4);
  const auto x = torch::randn({2, 4}).requires_grad_(true);
  const auto call = [&](const at::Tensor& input) { return layer(input); };
  EXPECT_THROW(recompute(call, at::Tensor()), Error);
  EXPECT_THROW(torch::autograd::grad({recompute(call, x).sum()}, {x}), Error);
  auto once = recompute(call, x).sum();
  once.backward();
  EXPECT_ANY_THROW(once.backward()) << "the inputs are gone";
  int number = 0;
  const TensorFunction growing = [&](const auto& in) {
    return std::vector<at::Tensor>(static_cast<size_t>(++number), in[0] * 2);
  };
  EXPECT_THROW(recompute(growing, {x})[0].sum().backward(), Error);
}

// Oracle: for n blocks, the memory is n inputs and the activations of one block.
TEST(Recompute, HoldsTheActivationsOfOneBlock) {
  fakes::count_tensor_bytes();
  constexpr int kDepth = 12;
  Deep model(kDepth, 64);
  const auto x = torch::randn({1024, 64});
  const double activation = static_cast<double>(x.nbytes());
  const auto peak_of = [&](bool keep) {
    model.keep = keep;
    gradients_of(model, x);  // allocates the gradients
    const auto before = fakes::tensor_bytes();
    fakes::reset_peak_tensor_bytes();
    gradients_of(model, x);
    return static_cast<double>(fakes::peak_tensor_bytes() - before) / activation;
  };
  const double kept = peak_of(true), recomputed = peak_of(false);
  RecordProperty("kept", std::to_string(kept));
  RecordProperty("recomputed", std::to_string(recomputed));
  EXPECT_GT(kept, 4 * kDepth) << "a block's input, and the outputs of relu, tanh and sigmoid";
  EXPECT_LT(recomputed, kDepth + 10) << "an input a block, and one block";
}

TEST(Recompute, WorksInsideDistributedDataParallel) {
  Deep plain;
  const auto x = torch::randn({8, 16});
  plain.forward(x).square().mean().backward();
  fakes::run_ranks(2, [&](dist::World& world) {
    Deep model;
    model.keep = false;
    DistributedDataParallel net(model, world);
    for (int round = 0; round < 3; ++round) {
      model.zero_grad();
      net(x.narrow(0, 4 * world.rank(), 4)).square().mean().backward();
      for (size_t i = 0; i < model.parameters().size(); ++i) {
        EXPECT_TRUE(torch::allclose(model.parameters()[i].grad(), plain.parameters()[i].grad(), 1e-4, 1e-6)) << i;
      }
    }
  });
}

TEST(Recompute, CommunicatesAgainInBackward) {
  fakes::run_ranks(2, [](dist::World& world) {
    const auto block = [&](const at::Tensor& x) {
      return dist::gradient::all_gather(world, torch::tanh(x)).sum(0) * torch::sigmoid(x);
    };
    const auto gradient_of = [&](bool keep) {
      const auto x = torch::arange(6).mul(0.3).add(world.rank()).requires_grad_(true);
      const auto middle = keep ? block(x) : recompute(block, x);
      (keep ? block(middle) : recompute(block, middle)).square().sum().backward();
      return x.grad();
    };
    EXPECT_TRUE(torch::equal(gradient_of(false), gradient_of(true)));
  });
}

}  // namespace
}  // namespace yoke::train
