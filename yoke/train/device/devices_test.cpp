#include "yoke/train/device/devices.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <functional>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/dist/plug.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/checkpoint/tensor_slice.h"

// The second device of these tests is libtorch's "meta", which has shapes and no data.
namespace yoke::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const c10::Device kCpu(c10::kCPU), kMeta(c10::kMeta);

TEST(Devices, AreTheCpuWithoutAGpu) {
  if (dist::loaded_plug() != nullptr) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(num_gpus(), 0);
  EXPECT_EQ(try_gpu(), kCpu);
  EXPECT_EQ(try_gpu(7), kCpu);
  EXPECT_THAT(try_all_gpus(), ElementsAre(kCpu));
  EXPECT_EQ(device_name({c10::kCUDA, 0}), "cuda:0");
  EXPECT_THROW(try_gpu(-1), Error);
}

TEST(Devices, NamesTheCpu) { EXPECT_FALSE(device_name(kCpu).empty()); }

TEST(Devices, CopiesATensorOnlyToAnotherDevice) {
  const auto tensor = at::ones({3});
  EXPECT_EQ(to(tensor, kCpu).data_ptr(), tensor.data_ptr());
  EXPECT_TRUE(to(tensor, kCpu).is_same(tensor));
  EXPECT_TRUE(to(tensor, c10::Device("cpu:0")).is_same(tensor));
  EXPECT_TRUE(to(tensor, kMeta).is_meta());
  EXPECT_TRUE(tensor.is_cpu());
}

TEST(Devices, MovesAModuleInPlaceOrLeavesItWhereItIs) {
  const auto device = try_all_gpus().back();
  torch::nn::BatchNorm1d norm(3);
  const auto weight = norm->weight;  // a reference to the parameter, as optimizers hold
  const auto* data = weight.const_data_ptr();
  norm->weight.mutable_grad() = at::ones({3});
  const auto gradient = norm->weight.grad();

  to(*norm, kCpu);
  EXPECT_EQ(weight.const_data_ptr(), data);
  EXPECT_TRUE(norm->weight.grad().is_same(gradient));

  follow(*norm, at::ones({2, 3}, device));
  EXPECT_EQ(weight.device(), device);
  EXPECT_TRUE(weight.is_same(norm->named_parameters()["weight"]));
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_EQ(weight.grad().device(), device);
  EXPECT_EQ(device_of(*norm), device);
}

struct Apart : torch::nn::Module {
  Apart() {
    register_parameter("weight", at::ones({3}));
    register_parameter("bias", at::ones({3}));
    register_buffer("mean", at::empty({3}, kMeta));
  }
};

TEST(Devices, NamesTheFirstTwoThatAreApart) {
  EXPECT_EQ(device_of(*torch::nn::Linear(2, 2)), kCpu);
  EXPECT_EQ(device_of(torch::nn::Module()), std::nullopt);
  EXPECT_THAT(test::error_of([&] { device_of(Apart()); }).what(),
              AllOf(HasSubstr("'weight' is on cpu"), HasSubstr("'mean' on meta")));
}

TEST(Devices, NamesBothSidesThatShouldBeOnOne) {
  const auto x = at::ones({2}), y = at::empty({2}, kMeta);
  check_same_device("x", x, "weight", at::ones({3}));
  check_same_device("x", at::ones({}), "weight", y);  // a scalar matches any device
  EXPECT_THAT(test::error_of([&] { check_same_device("x", x, "weight", y); }).what(),
              HasSubstr("'x' is on cpu, 'weight' on meta"));
}

// A file does not store devices: loading copies values into existing tensors, on any device.
TEST(Devices, ACheckpointKeepsTheReceiversDevice) {
  torch::nn::Linear saved(3, 2), receiver(3, 2);
  const auto state = named_tensors(*saved);
  const auto* data = receiver->weight.const_data_ptr();
  load_module(state, *receiver);
  EXPECT_TRUE(receiver->weight.equal(saved->weight));
  EXPECT_EQ(receiver->weight.const_data_ptr(), data);

  const NamedTensors elsewhere{{"weight", at::empty({2, 3}, kMeta)}, {"bias", at::empty({2}, kMeta)}};
  prepare_to_load(source_of(by_name(state)), slices_of(elsewhere))();
  EXPECT_TRUE(elsewhere.front().second.is_meta());
}

// This test comes last, because a plug stays registered.
TEST(DevicesWithAPlug, AreItsGpus) {
  if (dist::loaded_plug() != nullptr) GTEST_SKIP() << "this machine has a GPU";
  static const dist::Plug plug = {
      .name = "two",
      .device_type = c10::kCUDA,
      .num_devices = [] { return int64_t{2}; },
      .set_device = [](c10::DeviceIndex) {},
      .device_name = [](c10::DeviceIndex index) { return "GPU number " + std::to_string(index); },
      .has_bfloat16 = [](c10::DeviceIndex) { return true; },
      .make_backend = nullptr,
      .engine = nullptr,
  };
  dist::register_plug(plug);
  const c10::Device first(c10::kCUDA, 0), second(c10::kCUDA, 1);
  EXPECT_EQ(num_gpus(), 2);
  EXPECT_EQ(try_gpu(1), second);
  EXPECT_EQ(try_gpu(2), kCpu);
  EXPECT_THAT(try_all_gpus(), ElementsAre(first, second));
  EXPECT_EQ(device_name(second), "GPU number 1");
}

}  // namespace
}  // namespace yoke::train
