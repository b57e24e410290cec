// Tests of the residual networks: names, figures and gradients of torchvision's, and the variant for small images.
#include "yoke/models/resnet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/models/gold_test.h"

namespace yoke::models {
namespace {

using testing::HasSubstr;

int64_t num_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

// The numbers are those of torchvision's documentation, "num_params".
TEST(ResNet, HasTorchvisionsParameters) {
  EXPECT_EQ(num_parameters(*ResNet(resnet34())), 21'797'672);
  ResNet net(resnet50());
  EXPECT_EQ(num_parameters(*net), 25'557'032);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : train::named_tensors(*net)) names.push_back(name);
  EXPECT_EQ(names.size(), 320);
  EXPECT_THAT(names, testing::IsSupersetOf({"conv1.weight", "bn1.num_batches_tracked", "layer1.0.conv1.weight",
                                            "layer1.0.downsample.0.weight", "layer1.0.downsample.1.running_var",
                                            "layer4.2.bn3.bias", "fc.weight", "fc.bias"}));
  expect_output(net, 64, gold()["resnet50"]);
}

TEST(ResNet, OfEighteenLayersComputesWhatTorchvisionDoes) {
  ResNet net(resnet18());
  EXPECT_EQ(num_parameters(*net), 11'689'512);
  expect_output(net, 64, gold()["resnet18"]);
}

TEST(ResNet, BeginsWithTorchvisionsWeights) {
  torch::manual_seed(3);
  ResNet net(resnet18(10));
  const auto parameters = net->named_parameters();
  for (const auto& [name, values] : gold()["first_weights"].items()) {
    SCOPED_TRACE(name);
    expect_gold(parameters[name].flatten().narrow(0, 0, 4), values, 1e-5);
  }
}

TEST(ResNet, ForSmallImagesTakesTorchvisionsStep) {
  auto options = cifar_resnet18(10);
  EXPECT_EQ(num_parameters(*ResNet(options)), 11'173'962);  // ResNet-18's without 64 * 3 * 40 in conv1, 990 * 513 in fc
  options.depths = {1, 1, 1, 1};
  ResNet net(options);
  expect_step(net, 32, gold()["small_resnet"]);
  expect_gold(net->named_buffers()["bn1.running_mean"].narrow(0, 0, 4), gold()["small_resnet"]["running_mean"]);
}

TEST(ResNet, MayBeginEachBlockAsTheIdentity) {
  ResNetOptions options{.depths = {1, 1, 1, 1}, .bottleneck = true, .width = 8, .num_classes = 3};
  EXPECT_NE(ResNet(options)->named_parameters()["layer1.0.bn3.weight"].abs().sum().item<float>(), 0);
  options.zero_init_residual = true;
  EXPECT_EQ(ResNet(options)->named_parameters()["layer1.0.bn3.weight"].abs().sum().item<float>(), 0);
}

TEST(ResNet, RefusesImpossibleOptions) {
  EXPECT_THAT(test::message_of([] { ResNet(resnet18(0)); }, ErrorCode::kInvalidArgument), HasSubstr("not 0 and 64"));
  const ResNetOptions hollow{.depths = {1, 1, 0, 1}};
  EXPECT_THAT(test::message_of([&] { ResNet{hollow}; }, ErrorCode::kInvalidArgument), HasSubstr("block, not 0"));
}

}  // namespace
}  // namespace yoke::models
