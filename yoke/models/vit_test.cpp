// Tests of the vision transformers and of files of weights: names and figures of timm's and torchvision's, other sizes.
#include "yoke/models/vit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/models/gold_test.h"
#include "yoke/models/resnet.h"
#include "yoke/models/weights.h"
#include "yoke/train/format/pt_file.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"

namespace yoke::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ViTOptions small(int64_t num_classes = 10) {
  return {.image_size = 32, .patch_size = 8, .width = 48, .depth = 2, .num_heads = 3, .num_classes = num_classes};
}

// The number is that of timm's vit_small_patch16_224.
TEST(ViT, ComputesWhatTimmDoes) {
  ViT net(vit_small());
  int64_t count = 0;
  for (const auto& parameter : net->parameters()) count += parameter.numel();
  EXPECT_EQ(count, 22'050'664);
  expect_output(net, 224, gold()["vit_small"]);
}

TEST(ViT, TakesTimmsStep) {
  ViT net(small());
  std::vector<std::string> names;
  for (const auto& [name, tensor] : train::named_tensors(*net)) names.push_back(name);
  EXPECT_EQ(names, gold()["timm_vit"].get<std::vector<std::string>>());
  expect_step(net, 32, gold()["small_vit"]);
}

TEST(ViT, TakesTorchvisionsWeights) {
  ViT net(small());
  const auto ours = train::by_name(train::named_tensors(*net));
  train::NamedTensors theirs;  // in torchvision's order, with the shapes of ours
  for (const auto& name : gold()["torchvision_vit"].get<std::vector<std::string>>()) {
    const auto renamed = timm_names({{name, {}}}).begin()->first;
    ASSERT_TRUE(ours.contains(renamed)) << name << " became " << renamed;
    EXPECT_EQ(torchvision_names({{renamed, {}}}).begin()->first, name);
    theirs.emplace_back(name, torch::empty(ours.at(renamed).sizes()));
  }
  fill(theirs);
  EXPECT_THAT(load_weights(net->adapted(train::by_name(theirs)), *net), ElementsAre());
  net->eval();
  expect_gold(net->forward(images(2, 32)).narrow(1, 0, 8), gold()["torchvision_vit_output"]);
  EXPECT_EQ(timm_names({{"encoder.layers.encoder_layer_11.mlp.linear_2.bias", {}}}).begin()->first,
            "blocks.11.mlp.fc2.bias")
      << "torchvision before 0.14";
}

TEST(ViT, ResizesPositionsAsTimmDoes) {
  train::TensorMap weights{{"pos_embed", noise(17 * 3, 5).view({1, 17, 3}).to(torch::kFloat)}};
  fit_positions(weights, {.image_size = 48, .patch_size = 8});
  EXPECT_EQ(weights["pos_embed"].sizes(), at::IntArrayRef({1, 37, 3}));
  expect_gold(weights["pos_embed"], gold()["positions"], 1e-5);
  weights["pos_embed"] = torch::zeros({1, 18, 3});
  EXPECT_THAT(test::message_of([&] { fit_positions(weights, {.image_size = 48}); }, ErrorCode::kInvalidArgument),
              HasSubstr("pos_embed has 18 positions"));
}

TEST(ViT, RefusesImpossibleOptionsAndImages) {
  const auto refusal = [](const ViTOptions& options) {
    return test::message_of([&] { ViT{options}; }, ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(refusal({.image_size = 225}), HasSubstr("multiple of the patch's 16 pixels on a side, not 225"));
  EXPECT_THAT(refusal({.width = 384, .num_heads = 5}), HasSubstr("multiple of its 5 heads, not 384"));
  EXPECT_THAT(refusal({.num_classes = 0}), HasSubstr("not 12, 4 and 0"));
  ViT net(small());
  EXPECT_THAT(test::message_of([&] { net->forward(images(1, 40)); }, ErrorCode::kInvalidArgument),
              HasSubstr("takes images [batch, 3, 32, 32], not [1, 3, 40, 40]"));
}

// Oracle: the network in one process.
TEST(ViT, ComputesTheSameSharded) {
  const auto x = images(2, 32);
  torch::manual_seed(1);
  ViT whole(small());
  const auto expected = whole->forward(x);
  fakes::run_ranks(2, [&](dist::World& world) {
    auto part = std::make_shared<ViTImpl>(small());
    load_weights(train::by_name(train::named_tensors(*whole)), *part);
    train::FullyShardedDataParallel<ImageModel> net(*part, world, {.units = part->fsdp_units()});
    EXPECT_TRUE(torch::allclose(net(x), expected, 1e-4, 1e-5)) << "rank " << world.rank();
  });
}

class Weights : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name) const { return folder_.path(name); }
  train::TensorMap tensors_of(ViT& net) { return train::by_name(train::named_tensors(*net)); }

  test::TemporaryFolder folder_;
};

// Oracle: the network that was written.
TEST_F(Weights, GoThroughAllKindsOfFiles) {
  ViT net(small());
  const auto x = images(2, 32);
  const auto expected = net->forward(x);
  fakes::run_ranks(1, [&](dist::World& world) {
    save_weights(world, *net, file("a.safetensors"));
    save_weights(world, *net, file("b.pt"));
  });
  train::PtDict state, wrapped;
  for (const auto& [name, tensor] : train::named_tensors(*net)) {
    state.items.push_back(train::pt_item("module." + name, tensor.detach()));
  }
  wrapped.items.push_back({std::string("state_dict"), state});
  train::write_pt(file("c.pth"), wrapped);
  for (const auto* name : {"a.safetensors", "b.pt", "c.pth"}) {
    ViT other(small());
    EXPECT_FALSE(torch::equal(other->forward(x), expected));
    EXPECT_THAT(load_weights(read_weights(file(name)), *other), ElementsAre()) << name;
    EXPECT_TRUE(torch::equal(other->forward(x), expected)) << name;
  }
  // Beside its weights this file has argparse.Namespace and other objects that are not read.
  EXPECT_TRUE(read_weights(test::reference("pt/beside.pt")).contains("weight"));
}

TEST_F(Weights, LeaveAHeadOfAnotherShape) {
  ViT net(small()), other(small(4));
  const auto head = other->named_parameters()["head.weight"].clone();
  EXPECT_THAT(load_weights(tensors_of(net), *other, {.head = other->head()}), ElementsAre("head.bias", "head.weight"));
  EXPECT_TRUE(torch::equal(other->named_parameters()["head.weight"], head));
  EXPECT_TRUE(torch::equal(other->named_parameters()["cls_token"], net->named_parameters()["cls_token"]));
  auto trunk = tensors_of(net);
  trunk.erase("head.weight");
  trunk.erase("head.bias");
  ViT third(small());
  EXPECT_THAT(load_weights(trunk, *third, {.head = "head"}), ElementsAre("head.bias", "head.weight"));
}

TEST_F(Weights, AreRefusedWithTheNameOfTheFirstDifference) {
  ViT net(small());
  const auto before = net->named_parameters()["cls_token"].clone();
  const auto refusal = [&](const train::TensorMap& from, const LoadOptions& options = {}) {
    return test::message_of([&] { load_weights(from, *net, options); }, ErrorCode::kInvalidArgument);
  };
  ViT other(small(4));
  EXPECT_THAT(refusal(tensors_of(other)), HasSubstr("head.bias"));
  auto lacks = tensors_of(other);
  lacks.erase("blocks.1.norm1.weight");
  EXPECT_THAT(refusal(lacks, {.head = "head"}), HasSubstr("the weights lack blocks.1.norm1.weight"));
  auto more = tensors_of(other);
  more.emplace("blocks.2.norm1.weight", torch::zeros(48));
  EXPECT_THAT(refusal(more, {.head = "head"}), HasSubstr("the weights have blocks.2.norm1.weight"));
  EXPECT_TRUE(torch::equal(net->named_parameters()["cls_token"], before));
}

TEST_F(Weights, OfHalfPrecisionAndWithoutCountersAreTaken) {
  const ResNetOptions options{.depths = {1, 1, 1, 1}, .width = 8, .num_classes = 3};
  ResNet net(options), other(options);
  train::TensorMap old;
  for (const auto& [name, tensor] : train::named_tensors(*net)) {
    if (tensor.is_floating_point()) old.emplace(name, tensor.detach().to(torch::kHalf));
  }
  const auto kept = load_weights(old, *other);
  EXPECT_EQ(kept.size(), 12);
  EXPECT_EQ(kept.front(), "bn1.num_batches_tracked");
  EXPECT_TRUE(
      torch::allclose(net->named_parameters()["conv1.weight"], other->named_parameters()["conv1.weight"], 1e-3, 1e-4));
}

}  // namespace
}  // namespace yoke::models
