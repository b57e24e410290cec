#include "yoke/train/precision/autocast.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace yoke::train {
namespace {

TEST(Autocast, LowersMatrixProductsInItsScopeOnly) {
  const auto x = at::ones({4, 4});
  {
    const Autocast autocast({});
    EXPECT_EQ(at::matmul(x, x).scalar_type(), at::kBFloat16);
    {
      const Autocast off({.enabled = false});
      EXPECT_EQ(at::matmul(x, x).scalar_type(), at::kFloat);
    }
    EXPECT_EQ(at::matmul(x, x).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::matmul(x, x).scalar_type(), at::kFloat);
}

// A cast that outlived its scope would be used in the next one, whatever has become of the weight.
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

}  // namespace
}  // namespace yoke::train
