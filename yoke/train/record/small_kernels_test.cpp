#include "yoke/train/record/detail/small_kernels.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold_backward.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

// Oracle: libtorch's operator, to the bit.
namespace yoke::train::detail {
namespace {

testing::AssertionResult same_bits(const at::Tensor& ours, const at::Tensor& theirs) {
  const auto plain = theirs.contiguous();
  if (ours.nbytes() == plain.nbytes() &&
      std::memcmp(ours.const_data_ptr(), plain.const_data_ptr(), ours.nbytes()) == 0) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "of " << theirs.sizes() << ": " << (ours - theirs).abs().max().item<float>();
}

bool has_avx512() { return at::get_cpu_capability() == "AVX512"; }

/// Numbers of many magnitudes.
at::Tensor numbers(at::IntArrayRef sizes) { return at::randn(sizes) * at::randn(sizes).exp() * 3; }

constexpr int64_t kRows[] = {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 67, 100, 128, 200, 255};
constexpr int64_t kColumns[] = {1, 2, 3, 7, 8, 9, 10, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 100, 130, 200};

TEST(SmallKernels, SumsOfRowsHaveTheBitsOfLibtorch) {
  at::manual_seed(1);
  int num_own = 0;
  for (const auto rows : kRows) {
    for (const auto columns : kColumns) {
      const auto x = at::empty({rows, columns}, at::kFloat), sum = at::empty({columns}, at::kFloat);
      const auto small = small_sum_of_rows(sum, x);
      if (small == nullptr) continue;
      ++num_own;
      for (int i = 0; i < 3; ++i) {
        at::Tensor(x).copy_(numbers(x.sizes()));
        small();
        EXPECT_TRUE(same_bits(sum, at::sum(x, 0))) << rows;
      }
    }
  }
  EXPECT_GT(num_own, 300) << "of 380 shapes";
  const auto many = at::zeros({256, 4}), none = at::zeros({0, 4}), sum = at::zeros({4});
  EXPECT_EQ(small_sum_of_rows(sum, many), nullptr);
  EXPECT_EQ(small_sum_of_rows(sum, none), nullptr);
}

TEST(SmallKernels, LogSoftmaxAndItsGradientHaveTheBitsOfLibtorch) {
  at::manual_seed(2);
  for (const auto rows : kRows) {
    for (int64_t columns = 1; columns <= 20; ++columns) {
      const auto x = at::zeros({rows, columns}), gradient = at::zeros({rows, columns}), y = at::zeros_like(x),
                 result = at::zeros_like(x);
      const auto forward = small_log_softmax(result, x);
      const auto backward = small_log_softmax_backward(result, gradient, y);
      EXPECT_EQ(forward != nullptr, has_avx512() && columns < 16) << columns;
      EXPECT_EQ(backward != nullptr, has_avx512() && columns < 16) << columns;
      for (int i = 0; i < 3; ++i) {
        at::Tensor(x).copy_(numbers(x.sizes()) * (i == 2 ? 30 : 1));
        if (i == 1) x[0][columns - 1] = -INFINITY;  // as a mask does
        at::Tensor(gradient).copy_(numbers(x.sizes()));
        const auto expected = at::_log_softmax(x, 1, false);
        if (forward) {
          forward();
          EXPECT_TRUE(same_bits(result, expected));
        }
        if (backward) {
          at::Tensor(y).copy_(expected);
          backward();
          EXPECT_TRUE(same_bits(result, at::_log_softmax_backward_data(gradient, expected, 1, at::kFloat)));
        }
      }
      if (!forward) continue;
      x[0][0] = NAN;
      forward();
      EXPECT_TRUE(result[0].isnan().all().item<bool>());
      EXPECT_TRUE(rows == 1 || !result[1].isnan().any().item<bool>());
    }
  }
}

class SmallKernelsOf : public testing::TestWithParam<bool> {};  // whether denormals are flushed

TEST_P(SmallKernelsOf, ReluAndThresholdHaveTheBitsOfLibtorch) {
  at::globalContext().setFlushDenormal(GetParam());  // does nothing where a processor cannot do it
  at::manual_seed(3);
  for (const int64_t size : {1, 7, 8, 9, 31, 64, 1000}) {
    const auto x = numbers({size}), gradient = numbers({size}), result = at::empty_like(x);
    const float special[] = {NAN, -0.0F, INFINITY, -INFINITY, 1e-40F, -1e-40F, 0.5F};
    for (int64_t i = 0; i < std::min<int64_t>(size, 7); ++i) x[i] = special[i];
    if (const auto small = small_relu(result, x)) {
      small();
      EXPECT_TRUE(same_bits(result, at::relu(x)));
    }
    for (const float threshold : {0.0F, 0.5F}) {
      small_threshold_backward(result, gradient, x, threshold)();
      EXPECT_TRUE(same_bits(result, at::threshold_backward(gradient, x, threshold)));
    }
  }
#ifdef __x86_64__
  EXPECT_NE(small_relu(at::zeros({4}), at::zeros({4})), nullptr);
#endif
  at::globalContext().setFlushDenormal(false);
}

INSTANTIATE_TEST_SUITE_P(Denormals, SmallKernelsOf, testing::Bool());

TEST(SmallKernels, TheNegativeLogLikelihoodHasTheBitsOfLibtorch) {
  at::manual_seed(4);
  for (const int64_t rows : {1, 2, 31, 32, 33, 64, 100, 1023, 1024, 1025, 3000}) {
    const auto x = at::zeros({rows, 5}), target = at::zeros({rows}, at::kLong), loss = at::zeros({}),
               count = at::zeros({}), gradient = at::zeros({}), result = at::zeros_like(x);
    int num_theirs = 0;
    const auto theirs = [&] { ++num_theirs; };
    const auto forward = small_nll_mean(loss, count, x, target, 3, theirs);
    const auto backward = small_nll_mean_backward(result, gradient, target, 3, count, theirs);
    for (int i = 0; i < 3; ++i) {
      at::Tensor(x).copy_(numbers(x.sizes()));
      at::Tensor(target).copy_(at::randint(5, {rows}));
      if (i == 2) at::Tensor(target).fill_(3);  // all are ignored: the mean of nothing
      at::Tensor(gradient).copy_(at::randn({}));
      const auto [its_loss, its_count] = at::nll_loss_forward(x, target, {}, at::Reduction::Mean, 3);
      forward();
      EXPECT_TRUE(same_bits(loss, its_loss)) << rows;
      EXPECT_TRUE(same_bits(count, its_count));
      backward();
      EXPECT_TRUE(same_bits(result, at::nll_loss_backward(gradient, x, target, {}, at::Reduction::Mean, 3, its_count)));
    }
    EXPECT_EQ(num_theirs, 0) << "the loop is not used";
    for (const int64_t no_class : {-1, 5}) {
      target[rows - 1] = no_class;
      num_theirs = 0;
      forward();
      backward();
      EXPECT_EQ(num_theirs, 2);
    }
  }
}

}  // namespace
}  // namespace yoke::train::detail
