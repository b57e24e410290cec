#include "yoke/train/precision/autocast.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

TEST(Autocast, LowersMatrixProductsInItsScopeOnly) {
  const auto x = at::ones({4, 4});
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const Autocast autocast({.dtype = dtype});
    EXPECT_EQ(at::matmul(x, x).scalar_type(), dtype);
    {
      const Autocast off({.enabled = false});
      EXPECT_EQ(at::matmul(x, x).scalar_type(), at::kFloat);
    }
    EXPECT_EQ(at::matmul(x, x).scalar_type(), dtype);
  }
  EXPECT_EQ(at::matmul(x, x).scalar_type(), at::kFloat);
}

// If a cast outlived its scope, the next scope would use it, even after a change of the weight.
TEST(Autocast, ForgetsItsCasts) {
  const auto weight = at::ones({4, 4}).requires_grad_();
  const auto x = at::ones({4, 4});
  const auto product = [&] {
    const Autocast autocast({});
    return at::matmul(x, weight)[0][0].item<float>();
  };
  EXPECT_EQ(product(), 4);
  {
    const c10::AutoGradMode no_grad(false);
    weight.fill_(2);
  }
  EXPECT_EQ(product(), 8);
}

// libtorch finds a cast only by its weight, so it could return a bfloat16 cast where float16 is needed.
TEST(Autocast, ForgetsCastsToAnotherDtype) {
  const auto weight = at::ones({4, 4}).requires_grad_();
  const auto x = at::ones({4, 4});
  const auto dtype_of_product = [&] { return at::matmul(x, weight).scalar_type(); };
  const Autocast outer({.dtype = at::kBFloat16});
  EXPECT_EQ(dtype_of_product(), at::kBFloat16);
  {
    const Autocast inner({.dtype = at::kHalf});
    EXPECT_EQ(dtype_of_product(), at::kHalf);
  }
  EXPECT_EQ(dtype_of_product(), at::kBFloat16);
}

TEST(Autocast, ForgetsCastsToAnotherDtypeBehindAScopeInFullPrecision) {
  const auto weight = at::ones({4, 4}).requires_grad_();
  const auto x = at::ones({4, 4});
  const auto dtype_of_product = [&] { return at::matmul(x, weight).scalar_type(); };
  const Autocast outer({.dtype = at::kHalf});
  EXPECT_EQ(dtype_of_product(), at::kHalf);
  {
    const Autocast off({.enabled = false});
    const Autocast inner({.dtype = at::kBFloat16});
    EXPECT_EQ(dtype_of_product(), at::kBFloat16);
  }
  EXPECT_EQ(dtype_of_product(), at::kHalf);
}

TEST(Autocast, KeepsDeviceTypesApart) {
  const auto x = at::ones({4, 4});
  const Autocast cpu({});
  {
    const Autocast cuda({.device_type = at::kCUDA, .dtype = at::kHalf});
    EXPECT_EQ(at::matmul(x, x).scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCUDA));
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCUDA), at::kHalf);
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCUDA));
  EXPECT_EQ(at::matmul(x, x).scalar_type(), at::kBFloat16);
}

TEST(Autocast, EndsWithAnException) {
  const auto x = at::ones({4, 4});
  try {
    const Autocast outer({});
    const Autocast inner({.dtype = at::kHalf});
    throw std::runtime_error("forward failed");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(at::matmul(x, x).scalar_type(), at::kFloat);
  EXPECT_EQ(at::autocast::increment_nesting(), 1);  // the nesting level was 0
  at::autocast::decrement_nesting();
}

TEST(Autocast, IsOfItsThread) {
  const auto x = at::ones({4, 4});
  const Autocast autocast({});
  std::thread([&x] { EXPECT_EQ(at::matmul(x, x).scalar_type(), at::kFloat); }).join();
}

TEST(Autocast, RefusesDtypesThatAreNotLower) {
  EXPECT_THROW(Autocast({.dtype = at::kDouble}), Error);
  EXPECT_THROW(Autocast({.dtype = at::kFloat}), Error);
}

}  // namespace
}  // namespace yoke::train
