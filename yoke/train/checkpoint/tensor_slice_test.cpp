#include "yoke/train/checkpoint/tensor_slice.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "fakes/run_ranks.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/train/shard/flat_layout.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

using test::message_of;
using testing::HasSubstr;

/// The parts of tensors that rank `rank` of `size` holds in sharded training.
NamedTensors divide(const TensorMap& tensors, int64_t rank, int64_t size) {
  std::vector<NamedShape> shapes;
  for (const auto& [name, tensor] : tensors) shapes.push_back({name, tensor.sizes().vec()});
  const FlatLayout layout(shapes, size);
  NamedTensors parts;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto part = layout.part(i, rank);
    const auto flat = tensors.at(shapes[i].name).reshape({-1});
    parts.emplace_back(
        shapes[i].name,
        flat.narrow(0, part.first, part.length).clone().view(shape_of_part(shapes[i].shape, part.length)));
    mark_sharded(parts.back().second, {.shape = shapes[i].shape, .first = part.first});
  }
  return parts;
}

TensorMap some_tensors() {
  TensorMap tensors = {{"a", at::arange(35).to(at::kFloat).view({7, 5})},
                       {"b", at::arange(3).to(at::kBFloat16)},
                       {"empty", at::empty({0, 3})},
                       {"scalar", at::full({}, 7, at::kLong)},
                       {"strange", at::full({5}, -0.0)}};
  tensors["strange"][1] = std::numeric_limits<float>::quiet_NaN();
  tensors["strange"][3] = -std::numeric_limits<float>::infinity();
  return tensors;
}

/// Compares all values by their bits, also NaN and -0.
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         at::equal(a.reshape({-1}).view(at::kByte), b.reshape({-1}).view(at::kByte));
}

TEST(TensorSlices, AreWholeAgainToTheLastBit) {
  const auto tensors = some_tensors();
  for (const int64_t size : {1, 2, 4}) {
    fakes::run_ranks(size, [&](dist::World& world) {
      auto parts = divide(tensors, world.rank(), world.size());
      parts.emplace_back("replica", at::full({2}, 3.0));  // whole on all ranks
      if (world.rank() == world.size() - 1) parts.emplace_back("last", at::full({2}, 4.0));
      const auto gathered = gather_tensors(world, parts);
      if (world.rank() != 0) {
        EXPECT_TRUE(gathered.empty());
        return;
      }
      EXPECT_EQ(gathered.back().first, "last") << "in their order";
      const TensorMap whole(gathered.begin(), gathered.end());
      ASSERT_EQ(whole.size(), tensors.size() + 2);
      for (const auto& [name, tensor] : tensors) EXPECT_TRUE(same_bytes(whole.at(name), tensor)) << name;
      EXPECT_TRUE(at::equal(whole.at("replica"), at::full({2}, 3.0)));
      EXPECT_TRUE(at::equal(whole.at("last"), at::full({2}, 4.0)));
    });
  }
}

TEST(TensorSlices, LoadFromTheWholeForAnyNumberOfRanks) {
  const auto tensors = some_tensors();
  for (const int64_t size : {1, 2, 3, 4}) {
    for (int64_t rank = 0; rank < size; ++rank) {
      const auto parts = divide(tensors, rank, size);
      for (const auto& [name, part] : parts) part.zero_();
      prepare_to_load(source_of(tensors), slices_of(parts))();
      const auto expected = divide(tensors, rank, size);
      for (size_t i = 0; i < parts.size(); ++i) EXPECT_TRUE(same_bytes(parts[i].second, expected[i].second));
    }
  }
}

TEST(TensorSlices, AnotherModelIsRefusedByItsFirstDifferenceAndNothingChanges) {
  const TensorMap stored = {{"b", at::zeros({3})}, {"c", at::zeros({2})}};
  const auto load = [&](const TensorMap& model) {
    const auto parts = divide(model, 0, 1);
    const auto message = message_of([&] { prepare_to_load(source_of(stored), slices_of(parts)); });
    for (const auto& [name, part] : parts) EXPECT_TRUE(at::equal(part, part.new_ones(part.sizes())));
    return message;
  };
  const auto ones = [](at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) { return at::full(shape, 1, dtype); };
  EXPECT_THAT(load({{"a", ones({1})}, {"b", ones({3})}, {"c", ones({2})}}), HasSubstr("'a', which it lacks"));
  EXPECT_THAT(load({{"c", ones({2})}}), HasSubstr("'b', which the model lacks"));
  EXPECT_THAT(load({{"b", ones({3})}, {"c", ones({1, 2})}}), HasSubstr("'c', Float [2] there and Float [1, 2]"));
  EXPECT_THAT(load({{"b", ones({3}, at::kDouble)}, {"c", ones({2})}}),
              HasSubstr("'b', Float [3] there and Double [3] in the model; convert the values with "
                        ".to(torch::kDouble), or the model with model->to(torch::kFloat)"));
  EXPECT_THAT(
      load({{"b", ones({3})}, {"d", ones({2})}}),
      HasSubstr("'c', which the model lacks (but 'd' has the same shape); load_matching() loads what both have"));
  EXPECT_THAT(load({{"a", ones({2})}, {"b", ones({3})}}),
              HasSubstr("'a', which it lacks (but 'c' has the same shape)"));
}

// Python's wrappers write their name before those of the module, and C++'s do not.
TEST(TensorSlices, APrefixOfAllNamesIsSaidWithTheWayToRemoveIt) {
  const auto load = [](const std::string& of_source, const std::string& of_model) {
    const TensorMap stored{{of_source + "fc.bias", at::zeros({1})}, {of_source + "fc.weight", at::zeros({1, 2})}};
    const NamedTensors model{{of_model + "fc.weight", at::ones({1, 2})}, {of_model + "fc.bias", at::ones({1})}};
    return message_of([&] { prepare_to_load(source_of(stored), slices_of(model)); });
  };
  const std::vector<std::array<const char*, 2>> cases = {
      {"module", "its names begin with 'module.' (Python's DistributedDataParallel writes it), and the model's do not"},
      {"_orig_mod", "begin with '_orig_mod.' (torch.compile writes it)"},
      {"module._orig_mod", "begin with 'module._orig_mod.' (torch.compile writes it)"},
      {"model", "begin with 'model.', and the model's do not"}};
  for (const auto& [prefix, message] : cases) {
    const auto said = load(std::string(prefix) + ".", "");
    EXPECT_THAT(said, HasSubstr(message));
    EXPECT_THAT(said, HasSubstr("part_of(source, \"" + std::string(prefix) + "\", '.')"));
    const TensorMap stored{{std::string(prefix) + ".fc.bias", at::zeros({1})}};
    const auto bias = at::ones({1});
    prepare_to_load(part_of(source_of(stored), prefix, '.'), slices_of({{"fc.bias", bias}}))();
    EXPECT_EQ(bias.item<float>(), 0) << "what the message says does not help";
  }
  EXPECT_THAT(load("", "net."), HasSubstr("the model's names begin with 'net.', and its names do not"));
  EXPECT_EQ(load("", ""), "(nothing thrown)");
  EXPECT_EQ(load("net.", "net."), "(nothing thrown)");
}

TEST(TensorSlices, RanksThatDisagreeAreTold) {
  const auto of = [](std::vector<int64_t> shape, int64_t first, int64_t length) {
    return describe_slices({{"a", std::move(shape), first, at::zeros({length})}});
  };
  EXPECT_EQ(plan_slices({of({4}, 0, 2), of({4}, 2, 2)})[0].parts.size(), 2u);
  EXPECT_EQ(plan_slices({of({4}, 0, 4), of({4}, 0, 4)})[0].parts.size(), 1u);
  EXPECT_THAT(message_of([&] { plan_slices({of({4}, 0, 2), of({5}, 2, 3)}); }), HasSubstr("is Float [5] on rank 1"));
  EXPECT_THAT(message_of([&] { plan_slices({of({4}, 0, 2), of({4}, 3, 1)}); }), HasSubstr("no rank has its element 2"));
  EXPECT_THAT(message_of([&] { plan_slices({of({4}, 0, 3), of({4}, 2, 2)}); }), HasSubstr("or two have parts"));
}

TEST(TensorSlices, AnErrorOfTheSinkIsToldToTheOthers) {
  std::string message;
  const auto body = [&](dist::World& world) {
    const auto parts = divide(some_tensors(), world.rank(), world.size());
    try {
      gather_tensors(world, parts, [](const std::string&, const at::Tensor&) {
        throw Error(ErrorCode::kUnavailable, "no room for it");
      });
    } catch (const Error& error) {
      if (world.rank() == 1) message = error.what();
      throw;  // leaves without shutdown()
    }
  };
  EXPECT_THROW(fakes::run_ranks(2, body, std::chrono::seconds(3)), Error);
  EXPECT_THAT(message, HasSubstr("no room for it"));
}

}  // namespace
}  // namespace yoke::train
