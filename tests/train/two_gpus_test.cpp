// Tests moves between devices, on two fake GPUs that use the host's memory (fakes/gpus/host_gpus.cpp).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <limits>

#include "yoke/base/error.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/device/devices.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/data_parallel.h"
#include "yoke/train/precision/advise.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/precision/grad_scaler.h"

namespace yoke::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const c10::Device kCpu(c10::kCPU), kFirst(c10::kCUDA, 0), kSecond(c10::kCUDA, 1);

torch::nn::Sequential make_model() {
  at::manual_seed(0);
  torch::nn::Linear first(4, 8), last(8, 2);
  return torch::nn::Sequential(first, torch::nn::BatchNorm1d(8), torch::nn::Tanh(), last);
}

TEST(TwoGpus, AreFoundAndNamed) {
  EXPECT_THAT(try_all_gpus(), ElementsAre(kFirst, kSecond));
  EXPECT_EQ(try_gpu(2), kCpu);
  EXPECT_EQ(device_name(kSecond), "Host GPU 1");
  EXPECT_EQ(device_name(c10::Device(c10::kCUDA)), "Host GPU 0");
  EXPECT_THROW(at::ones({2}, kFirst) + at::ones({2}, kSecond), c10::Error);  // the fake distinguishes devices
}

// Oracle: the same loader on the CPU. (Copies of the fake GPUs are synchronous, so this test cannot detect memory that
// is reused too early.)
TEST(TwoGpus, ALoadersBatchesAreOnItsDevice) {
  const Samples samples{at::randn({21, 3}), at::arange(21)};
  for (const int64_t num_workers : {0, 2}) {
    LoaderOptions options{.batch_size = 4, .seed = 1, .num_workers = num_workers};
    Loader on_cpu(samples, options);
    options.device = kSecond;
    Loader on_gpu(samples, options);
    on_cpu.epoch(0);
    int64_t num_batches = 0;
    for (const auto& batch : on_gpu.epoch(0)) {
      const auto expected = on_cpu.next();
      EXPECT_EQ(batch.data.device(), kSecond);
      EXPECT_EQ(batch.target.device(), kSecond);
      EXPECT_TRUE(at::equal(batch.data.to(kCpu), expected->data));
      EXPECT_TRUE(at::equal(batch.target.to(kCpu), expected->target));
      ++num_batches;
    }
    EXPECT_EQ(num_batches, 6);
  }
}

TEST(TwoGpus, TensorsAndModulesMove) {
  const auto x = at::randn({3, 4});
  const auto there = to(x, c10::Device(c10::kCUDA));
  EXPECT_EQ(there.device(), kFirst);
  EXPECT_TRUE(to(there, c10::Device(c10::kCUDA)).is_same(there));
  EXPECT_NE(there.data_ptr(), x.data_ptr());

  auto model = make_model();
  const auto weight = model->parameters()[0];
  model->forward(x).sum().backward();
  const auto gradient = weight.grad().clone();
  const auto output = model->forward(x).detach();
  Sgd optimizer(model->named_parameters().pairs(), {.lr = 0.1});
  follow(*model, at::ones({1}, kSecond));
  EXPECT_EQ(device_of(*model), kSecond);
  EXPECT_EQ(weight.device(), kSecond);
  EXPECT_EQ(weight.grad().device(), kSecond);
  EXPECT_TRUE(at::equal(weight.grad().cpu(), gradient));
  EXPECT_TRUE(at::allclose(model->forward(to(x, kSecond)).cpu(), output));
  optimizer.step();  // the optimizer updates the moved parameters
  EXPECT_EQ(weight.device(), kSecond);
  EXPECT_THROW(model->forward(x), c10::Error);
}

TEST(TwoGpus, ACheckpointLoadsOntoAnotherDevice) {
  auto saved = make_model(), receiver = make_model();
  to(*saved, kFirst);
  to(*receiver, kSecond);
  for (const auto& parameter : receiver->parameters()) {
    const at::NoGradGuard no_grad;
    at::Tensor(parameter).zero_();
  }
  load_module(named_tensors(*saved), *receiver);
  EXPECT_EQ(device_of(*receiver), kSecond);
  EXPECT_TRUE(at::equal(receiver->parameters()[0].cpu(), saved->parameters()[0].cpu()));
}

TEST(TwoGpus, DataParallelEqualsOneModule) {
  torch::nn::Linear a(4, 8), b(8, 2);
  torch::nn::Sequential model(a, torch::nn::Tanh(), b);
  const auto whole = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model->clone());
  DataParallel parallel(model.ptr());
  EXPECT_EQ(device_of(*model), kFirst);
  Sgd optimizer(model->named_parameters().pairs(), {.lr = 0.1, .momentum = 0.9}),
      of_whole(whole->named_parameters().pairs(), {.lr = 0.1, .momentum = 0.9});
  const auto x = at::randn({7, 4});
  for (int i = 0; i < 5; ++i) {
    optimizer.zero_grad();
    of_whole.zero_grad();
    const auto output = parallel.forward(x);
    EXPECT_EQ(output.device(), kFirst);
    output.square().mean().backward();
    whole->forward(x).square().mean().backward();
    EXPECT_EQ(a->weight.grad().device(), kFirst);
    optimizer.step();
    of_whole.step();
    EXPECT_TRUE(at::allclose(a->weight.cpu(), whole->parameters()[0], 1e-5, 1e-6));
  }
  std::vector<c10::Device> devices(2, kCpu);
  parallel.run(
      [&](torch::nn::SequentialImpl& one, const std::vector<at::Tensor>& inputs) {
        const auto device = inputs[0].device();
        EXPECT_EQ(device_of(one), device);
        EXPECT_EQ(at::ones({1}, c10::kCUDA).device(), device);  // the thread's current device
        devices[static_cast<size_t>(device.index())] = device;
        return inputs;
      },
      {x});
  EXPECT_THAT(devices, ElementsAre(kFirst, kSecond));
  try {
    parallel.run([](auto& one, const auto& inputs) { return std::vector{one.forward(inputs[0].cpu())}; }, {x});
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("DataParallel: on cuda:0 (part 1 of 2)"));
  }
}

TEST(TwoGpus, DataParallelUnderAutocastWithAGradScaler) {
  auto model = make_model();
  DataParallel parallel(model.ptr());
  AdamW optimizer(model->named_parameters().pairs(), {.lr = 0.05});
  GradScaler scaler({.init_scale = 256, .growth_interval = 50});
  const auto x = at::randn({16, 4}), y = to(x.narrow(1, 0, 2), kFirst);
  at::Tensor loss;
  for (int i = 0; i < 60; ++i) {
    optimizer.zero_grad();
    {
      const Autocast autocast({.device_type = c10::kCUDA, .dtype = at::kHalf});
      const auto output = parallel.forward(x);
      EXPECT_EQ(output.scalar_type(), at::kHalf);
      loss = (output.to(at::kFloat) - y).square().mean();
    }
    scaler.scale(loss * (i == 30 ? std::numeric_limits<float>::infinity() : 1)).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  EXPECT_LT(loss.item<float>(), 0.1);
  EXPECT_EQ(scaler.scale_now(), 128);
}

// One optimizer has gradients on both devices. An overflow on either device must skip the whole step, without waiting
// for a device.
TEST(TwoGpus, GradScalerSeesGradientsOnBoth) {
  const auto a = at::ones({2}, kFirst).requires_grad_(), b = at::ones({2}, kSecond).requires_grad_();
  Sgd optimizer({{"a", a}, {"b", b}}, {.lr = 1});
  GradScaler scaler({.init_scale = 8});
  for (const auto* overflows : {&a, &b, static_cast<const at::Tensor*>(nullptr)}) {
    optimizer.zero_grad();
    for (const auto* parameter : {&a, &b}) {
      scaler.scale((*parameter * (parameter == overflows ? std::numeric_limits<float>::infinity() : 1)).sum())
          .backward();
    }
    scaler.step(optimizer);
    scaler.update();
  }
  EXPECT_TRUE(at::equal(a.cpu(), at::full({2}, 0)));
  EXPECT_TRUE(at::equal(b.cpu(), at::full({2}, 0)));
  EXPECT_EQ(scaler.scale_now(), 2);
}

TEST(TwoGpus, AdviseSpeaksOfTensorCores) {
  torch::nn::Linear layer(12, 16);
  to(*layer, kSecond);
  const auto advice = precision::advise(*layer, at::randn({8, 12}, kSecond), {.repetitions = 1});
  EXPECT_EQ(advice.device, kSecond);
  EXPECT_EQ(advice.hardware, "tensor cores");
  ASSERT_EQ(advice.layers.size(), 1u);
  EXPECT_EQ(advice.layers[0].product.layer, "weight");
  EXPECT_EQ(advice.layers[0].product.dtype, at::kBFloat16);
  EXPECT_EQ(advice.layers[0].reason, "12 input features: not a multiple of 8");
  EXPECT_THAT(to_text(advice), HasSubstr("Host GPU 1"));
}

}  // namespace
}  // namespace yoke::train
