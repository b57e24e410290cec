// Tests of the residual networks: names and figures of torchvision's, sharding, and the variant for small images.
#include "yoke/models/resnet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "yoke/base/error.h"
#include "yoke/train/checkpoint/module_state.h"

namespace yoke::models {
namespace {

int64_t num_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

std::vector<std::string> names_of(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : train::named_tensors(module)) names.push_back(name);
  return names;
}

// The numbers are in torchvision's documentation of the weights, "num_params".
TEST(ResNet, HasTorchvisionsParameters) {
  EXPECT_EQ(num_parameters(*ResNet(resnet18())), 11'689'512);
  EXPECT_EQ(num_parameters(*ResNet(resnet34())), 21'797'672);
  ResNet net(resnet50());
  EXPECT_EQ(num_parameters(*net), 25'557'032);
  const auto names = names_of(*net);
  EXPECT_EQ(names.size(), 320);
  EXPECT_THAT(names, testing::IsSupersetOf({"conv1.weight", "bn1.num_batches_tracked", "layer1.0.conv1.weight",
                                            "layer1.0.downsample.0.weight", "layer1.0.downsample.1.running_var",
                                            "layer4.2.bn3.bias", "fc.weight", "fc.bias"}));
}

TEST(ResNet, ForSmallImagesKeepsTheirSizeInTheStem) {
  ResNet net(cifar_resnet18(10));
  EXPECT_EQ(num_parameters(*net), 11'173'962);  // 11'689'512 less 64 * 3 * (49 - 9) in conv1 and 990 * 513 in fc
  EXPECT_EQ(net->forward(torch::zeros({2, 3, 32, 32})).sizes(), at::IntArrayRef({2, 10}));
}

TEST(ResNet, RefusesImpossibleOptions) {
  EXPECT_THROW(ResNet(resnet18(0)), Error);
  EXPECT_THROW(ResNet(ResNetOptions{.depths = {1, 1, 0, 1}}), Error);
}

}  // namespace
}  // namespace yoke::models
