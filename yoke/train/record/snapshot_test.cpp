#include "yoke/train/record/detail/snapshot.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace yoke::train::detail {
namespace {

/// Compares replays of a step that changes one tensor.
bool agree(const at::Tensor& before, const at::Tensor& step, const std::vector<at::Tensor>& replays) {
  std::vector<std::vector<at::Tensor>> of_replays;
  for (const auto& replay : replays) of_replays.push_back({replay});
  return differ_as_each_other({before}, {step}, of_replays);
}

at::Tensor numbers(float a, float b) { return at::tensor({a, b}); }

TEST(Snapshot, ReplaysMayDifferAsTheyDifferFromEachOther) {
  const auto before = numbers(1, 2), step = numbers(1.5, 2.5);
  const auto near = numbers(1.52F, 2.5F), far = numbers(1.56F, 2.5F);
  EXPECT_TRUE(agree(before, step, {step, step, step}));
  EXPECT_FALSE(agree(before, step, {near, near, near}));
  EXPECT_TRUE(agree(before, step, {near, numbers(1.51F, 2.5F), near}));
  EXPECT_FALSE(agree(before, step, {far, numbers(1.55F, 2.5F), far}));
  EXPECT_TRUE(agree(before, step, {far, numbers(1.54F, 2.5F), far}));
}

TEST(Snapshot, RoundingsOfTheChangeAreNoDifference) {
  const auto before = numbers(1, 2), step = numbers(1.5, 2.5);
  const auto rounded = numbers(1.5004F, 2.5F), other = numbers(1.501F, 2.5F);
  EXPECT_TRUE(agree(before, step, {rounded, rounded, rounded}));
  EXPECT_FALSE(agree(before, step, {other, other, other}));
  const auto half_before = before.to(at::kBFloat16), half_step = step.to(at::kBFloat16);
  const auto half_other = numbers(1.5078125F, 2.5F).to(at::kBFloat16);
  EXPECT_TRUE(agree(half_before, half_step, {half_other, half_other, half_other}));
}

TEST(Snapshot, CountsNanAndShapesMustBeTheSame) {
  constexpr auto kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  const auto count = at::full({1}, 1000000, at::kLong);
  EXPECT_FALSE(agree(count, count + 1, {count + 2, count + 2, count + 2}));
  EXPECT_TRUE(agree({}, numbers(kNan, 1), {numbers(kNan, 1), numbers(kNan, 1)}));
  EXPECT_FALSE(agree({}, numbers(kNan, 1), {numbers(2, 1), numbers(2, 1)}));
  EXPECT_FALSE(agree({}, numbers(1, 1), {numbers(kInfinity, 1), numbers(kInfinity, 1)}));
  EXPECT_FALSE(agree({}, numbers(1, 1), {at::Tensor(), at::Tensor()}));
  EXPECT_FALSE(agree({}, numbers(1, 1), {at::full({1}, 1.0F), at::full({1}, 1.0F)}));
}

}  // namespace
}  // namespace yoke::train::detail
