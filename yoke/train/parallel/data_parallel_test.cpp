#include "yoke/train/parallel/data_parallel.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <mutex>
#include <set>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/precision/autocast.h"

// A device may be named more than once, so replicas and threads are tested without any GPU.
namespace yoke::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Tensors = Replicas::Tensors;

const c10::Device kCpu(c10::kCPU);
const std::vector<c10::Device> kTwo(2, kCpu), kThree(3, kCpu);

torch::nn::Sequential make_mlp() {
  at::manual_seed(0);
  torch::nn::Linear first(4, 8), second(8, 2);
  return torch::nn::Sequential(first, torch::nn::Tanh(), second);
}

void expect_close(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto in_b = b.named_parameters();
  for (const auto& item : a.named_parameters()) {
    EXPECT_TRUE(at::allclose(item.value(), in_b[item.key()], 1e-5, 1e-6)) << item.key();
  }
}

// Oracle: one module that trains on the whole batch. Replicas get parts of the same batch: 7 rows are divided into 3, 3
// and 1.
TEST(DataParallel, IsOneModuleOnTheWholeBatch) {
  auto model = make_mlp(), whole = make_mlp();
  DataParallel parallel(model.ptr(), kThree);
  Sgd optimizer(model->named_parameters().pairs(), {.momentum = 0.9}),
      of_whole(whole->named_parameters().pairs(), {.momentum = 0.9});
  const auto x = at::randn({7, 4}), y = at::randn({7, 2});
  for (int i = 0; i < 10; ++i) {
    optimizer.zero_grad();
    of_whole.zero_grad();
    const auto output = parallel.forward(x);
    EXPECT_TRUE(at::allclose(output, whole->forward(x), 1e-5, 1e-6));
    (output - y).square().mean().backward();
    (whole->forward(x) - y).square().mean().backward();
    optimizer.step(0.1);
    of_whole.step(0.1);
    expect_close(*model, *whole);
  }
}

TEST(DataParallel, OnOneDeviceIsTheModuleItself) {
  auto model = make_mlp();
  DataParallel parallel(model.ptr(), {kCpu});
  const auto x = at::randn({5, 4});
  const void* seen = nullptr;
  const auto outputs = parallel.run(
      [&](torch::nn::SequentialImpl& one, const Tensors& inputs) {
        seen = &one;
        EXPECT_TRUE(inputs[0].is_same(x));
        return Tensors{one.forward(inputs[0])};
      },
      {x});
  EXPECT_EQ(seen, model.get());
  EXPECT_TRUE(at::equal(outputs[0], model->forward(x)));
}

TEST(DataParallel, SameGradientsInEveryRun) {
  auto model = make_mlp();
  DataParallel parallel(model.ptr(), {kCpu, kCpu, kCpu, kCpu});
  const auto x = at::randn({8, 4});
  at::Tensor first;
  for (int i = 0; i < 20; ++i) {
    model->zero_grad();
    parallel.forward(x).square().sum().backward();
    const auto gradient = model->parameters()[0].grad();
    if (!first.defined()) first = gradient.clone();
    EXPECT_TRUE(at::equal(first, gradient));
  }
}

TEST(DataParallel, TakesNoRandomNumbers) {
  auto model = make_mlp();
  at::manual_seed(7);
  const auto expected = at::randn({3});
  at::manual_seed(7);
  DataParallel parallel(model.ptr(), kTwo);
  parallel.forward(at::ones({4, 4}));
  EXPECT_TRUE(at::equal(at::randn({3}), expected));
}

TEST(DataParallel, KeepsTheBatchNormStatisticsOfTheFirstPart) {
  torch::nn::Sequential model(torch::nn::BatchNorm1d(4)), of_first(torch::nn::BatchNorm1d(4));
  DataParallel parallel(model.ptr(), kTwo);
  for (int i = 0; i < 3; ++i) {
    const auto x = at::randn({6, 4});
    parallel.forward(x);
    of_first->forward(x.narrow(0, 0, 3));
  }
  const auto expected = of_first->named_buffers();
  for (const auto& item : model->named_buffers())
    EXPECT_TRUE(at::equal(item.value(), expected[item.key()])) << item.key();

  // In evaluation all replicas use the running statistics of the first device.
  model->eval();
  of_first->eval();
  const auto x = at::randn({6, 4});
  EXPECT_TRUE(at::equal(parallel.forward(x), of_first->forward(x)));
}

TEST(DataParallel, FollowsTrainAndEval) {
  torch::nn::Sequential model(torch::nn::Linear(16, 16), torch::nn::Dropout(0.5));
  DataParallel parallel(model.ptr(), kTwo);
  const auto x = at::randn({4, 16});
  for (int i = 0; i < 2; ++i) {
    model->train();
    const auto dropped = parallel.forward(x);
    EXPECT_GT((dropped.narrow(0, 0, 2) == 0).sum().item<int64_t>(), 0);
    EXPECT_GT((dropped.narrow(0, 2, 2) == 0).sum().item<int64_t>(), 0);
    dropped.sum().backward();
    model->eval();
    EXPECT_EQ((parallel.forward(x) == 0).sum().item<int64_t>(), 0);
  }
  model->train();
  (*model->children()[1]).eval();  // only this layer is in evaluation mode
  EXPECT_EQ((parallel.forward(x) == 0).sum().item<int64_t>(), 0);
}

TEST(DataParallel, LeavesFrozenParametersAlone) {
  auto model = make_mlp();
  auto first = model->parameters()[0], last = model->parameters()[3];
  DataParallel parallel(model.ptr(), kTwo);
  const auto x = at::randn({4, 4});
  first.requires_grad_(false);
  parallel.forward(x).sum().backward();
  EXPECT_FALSE(first.grad().defined());
  EXPECT_TRUE(last.grad().defined());
  first.requires_grad_(true);
  last.requires_grad_(false);
  model->zero_grad();
  parallel.forward(x).sum().backward();
  EXPECT_TRUE(first.grad().defined());
  EXPECT_FALSE(last.grad().defined());
  parallel.run(
      [](torch::nn::SequentialImpl& one, const Tensors& inputs) {
        EXPECT_FALSE(one.parameters()[3].requires_grad());  // so replicas do not compute its gradient
        return inputs;
      },
      {x});
}

// The copies made by the second and third forward must not change the graph of the first.
TEST(DataParallel, ForwardsMoreThanOnceBeforeBackward) {
  auto model = make_mlp(), whole = make_mlp();
  DataParallel parallel(model.ptr(), kTwo);
  const auto a = at::randn({4, 4}), b = at::randn({2, 4});
  const auto loss = parallel.forward(a).square().sum() + parallel.forward(b).sum();
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(parallel.forward(a).requires_grad());
  }
  loss.backward();
  parallel.forward(b).sum().backward();  // adds to the gradients
  (whole->forward(a).square().sum() + 2 * whole->forward(b).sum()).backward();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(at::allclose(model->parameters()[i].grad(), whole->parameters()[i].grad(), 1e-5, 1e-6)) << i;
  }
}

TEST(DataParallel, AChangeBetweenForwardAndBackwardIsNoticed) {
  auto model = make_mlp();
  DataParallel parallel(model.ptr(), kTwo);
  const auto loss = parallel.forward(at::randn({4, 4})).sum();
  {
    const at::NoGradGuard no_grad;
    model->parameters()[2].add_(1);
  }
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(DataParallel, ThreadsTakeOverTheCallersStates) {
  auto model = make_mlp();
  DataParallel parallel(model.ptr(), kThree);
  const auto x = at::ones({3, 4});
  std::mutex mutex;
  std::set<std::thread::id> threads;
  const auto look = [&](bool grad, at::ScalarType dtype) {
    parallel.run(
        [&](torch::nn::SequentialImpl& one, const Tensors& inputs) {
          const auto output = one.forward(inputs[0]);
          const std::lock_guard lock(mutex);
          threads.insert(std::this_thread::get_id());
          EXPECT_EQ(output.requires_grad(), grad);
          EXPECT_EQ(output.scalar_type(), dtype);
          return Tensors{output};
        },
        {x});
  };
  look(true, at::kFloat);
  {
    const at::NoGradGuard no_grad;
    const Autocast autocast({.dtype = at::kBFloat16});
    look(false, at::kBFloat16);
  }
  {
    const Autocast autocast({.dtype = at::kHalf});
    look(true, at::kHalf);
  }
  look(true, at::kFloat);
  EXPECT_EQ(threads.size(), 3u);
  EXPECT_TRUE(threads.contains(std::this_thread::get_id()));
}

TEST(DataParallel, ComputesTheLossOnAllDevices) {
  auto model = make_mlp();
  DataParallel parallel(model.ptr(), kTwo);
  const auto x = at::randn({4, 4}), y = at::randn({4, 2});
  const auto losses =
      parallel.run([](torch::nn::SequentialImpl& one,
                      const Tensors& part) { return Tensors{(one.forward(part[0]) - part[1]).square().mean()}; },
                   {x, y})[0];
  EXPECT_EQ(losses.sizes(), (std::vector<int64_t>{2}));
  EXPECT_TRUE(at::allclose(losses.mean(), (model->forward(x) - y).square().mean()));
}

TEST(DataParallel, WithoutInputsTheModelAloneRuns) {
  auto model = make_mlp();
  DataParallel parallel(model.ptr(), kTwo);
  const auto sums = parallel.run(
      [](torch::nn::SequentialImpl& one, const Tensors&) { return Tensors{one.parameters()[0].sum()}; }, {})[0];
  EXPECT_TRUE(sums.equal(model->parameters()[0].sum()));
}

TEST(DataParallel, RefusesPartsWithDifferentNumbersOfOutputs) {
  auto model = make_mlp();
  DataParallel parallel(model.ptr(), kTwo);
  const auto more_of_one_row = [](torch::nn::SequentialImpl&, const Tensors& part) {
    return part[0].size(0) == 1 ? Tensors{part[0], part[0]} : Tensors{part[0]};
  };
  EXPECT_THROW(parallel.run(more_of_one_row, {at::ones({3, 4})}), Error);
}

TEST(DataParallel, GradientsReachTheInputsToo) {
  auto model = make_mlp();
  DataParallel parallel(model.ptr(), kTwo);
  const auto x = at::randn({4, 4}).requires_grad_();
  const auto same = x.detach().clone().requires_grad_();
  parallel.forward(x).square().sum().backward();
  model->forward(same).square().sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), same.grad()));
}

TEST(DataParallel, UsesFewerDevicesForASmallBatch) {
  auto model = make_mlp();
  DataParallel parallel(model.ptr(), kThree);
  for (const int64_t rows : {1, 2}) {
    const auto x = at::randn({rows, 4});
    const auto output = parallel.forward(x);
    EXPECT_TRUE(at::allclose(output, model->forward(x)));
    output.sum().backward();
  }
}

TEST(DataParallel, SaysOnWhichDeviceSomethingFailed) {
  auto model = make_mlp();
  DataParallel parallel(model.ptr(), kTwo);
  const auto failing = [&](int part, const std::function<void()>& fail) {
    try {
      parallel.run(
          [&](torch::nn::SequentialImpl& one, const Tensors& inputs) {
            if ((&one == model.get()) == (part == 0)) fail();
            return inputs;
          },
          {at::ones({2, 4})});
    } catch (const c10::Error& error) {
      return "c10: " + std::string(error.what_without_backtrace());
    } catch (const Error& error) {
      return "yoke: " + std::string(error.what());
    } catch (const std::exception& error) {
      return "std: " + std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(failing(0, [] { throw std::runtime_error("ouch"); }), "std: DataParallel: on cpu (part 1 of 2): ouch");
  EXPECT_EQ(failing(1, [] { throw Error(ErrorCode::kTimeout, "late"); }),
            "yoke: DataParallel: on cpu (part 2 of 2): late");
  EXPECT_THAT(failing(1, [] { at::ones({2}).add(at::ones({3})); }),
              AllOf(HasSubstr("c10: "), HasSubstr("part 2 of 2")));
  EXPECT_EQ(parallel.forward(at::ones({2, 4})).size(0), 2);  // the next forward works
  EXPECT_THROW(parallel.run([](auto&, const Tensors& inputs) { return inputs; }, {at::ones({2}), at::ones({3})}),
               Error);
}

struct Plain : torch::nn::Module {
  explicit Plain(int64_t width) { weight = register_parameter("weight", at::randn({width})); }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight;
};

TEST(DataParallel, TakesAFunctionForModelsThatCannotBeCloned) {
  const auto model = std::make_shared<Plain>(4);
  EXPECT_THROW(DataParallel<Plain>(model, kTwo), c10::Error);
  DataParallel<Plain> parallel(model, kTwo, [] { return std::make_shared<Plain>(4); });
  const auto x = at::randn({6, 4});
  EXPECT_TRUE(at::equal(parallel.forward(x), model->forward(x)));
  try {
    DataParallel<Plain> wrong(model, kTwo, [] { return std::make_shared<Plain>(5); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'weight'"), HasSubstr("[4]"), HasSubstr("[5]")));
  }
  EXPECT_THROW(DataParallel<Plain>(model, {}), Error);
}

}  // namespace
}  // namespace yoke::train
