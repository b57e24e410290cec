#include "yoke/train/detail/max_pool.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool2d_with_indices_backward_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <regex>

namespace yoke::train {
namespace {

using Sizes = std::vector<int64_t>;

struct Case {
  Sizes window{2, 2}, stride{2, 2}, padding{0, 0}, dilation{1, 1};
  bool ceil_mode = false;
};

constexpr auto kInfinity = std::numeric_limits<double>::infinity();
constexpr auto kNan = std::numeric_limits<double>::quiet_NaN();

/// Whether all bits are the same, but for NaN, of which libtorch's own kernels have different bits for different sizes.
testing::AssertionResult are_same(const at::Tensor& of_yoke, const at::Tensor& of_libtorch) {
  const auto with_one_nan = [](const at::Tensor& x) {
    return x.is_floating_point() ? x.clone().masked_fill_(x.isnan(), kNan) : x;
  };
  const auto a = with_one_nan(of_yoke), b = with_one_nan(of_libtorch);
  if (a.sizes() != b.sizes() || a.strides() != b.strides() || a.scalar_type() != b.scalar_type()) {
    return testing::AssertionFailure() << "other sizes, strides or types";
  }
  if (std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) return testing::AssertionSuccess();
  const auto *of_a = static_cast<const uint8_t*>(a.const_data_ptr()),
             *of_b = static_cast<const uint8_t*>(b.const_data_ptr());
  const auto at = std::mismatch(of_a, of_a + a.nbytes(), of_b).first - of_a;
  return testing::AssertionFailure() << "number " << at / a.itemsize() << " in memory differs";
}

/// Compares the operators that the dispatcher has with libtorch's kernels, bit by bit.
void compare(const at::Tensor& x, const Case& c = {}) {
  SCOPED_TRACE(testing::Message() << x.sizes() << x.strides() << x.scalar_type() << " window " << c.window << " stride "
                                  << c.stride << " padding " << c.padding);
  const auto [y, index] = at::max_pool2d_with_indices(x, c.window, c.stride, c.padding, c.dilation, c.ceil_mode);
  const auto [their_y, their_index] =
      at::cpu::max_pool2d_with_indices(x, c.window, c.stride, c.padding, c.dilation, c.ceil_mode);
  ASSERT_TRUE(are_same(y, their_y));
  ASSERT_TRUE(are_same(index, their_index));
  const auto gradient = at::randn_like(y).masked_fill_(y == 0, -0.0).masked_fill_(y == 1, kNan);
  const auto of_x = [&, index = index](auto* backward) {
    return backward(gradient, x, c.window, c.stride, c.padding, c.dilation, c.ceil_mode, index);
  };
  ASSERT_TRUE(are_same(of_x(&at::max_pool2d_with_indices_backward), of_x(&at::cpu::max_pool2d_with_indices_backward)));
}

/// Few different numbers, so that many are equal, also 0 and -0, and an infinity. With infinities of both signs
/// libtorch would compute the result.
at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType type, double infinity = -kInfinity) {
  auto x = at::randint(-2, 3, sizes, at::kDouble);
  x.mul_(at::randint(0, 2, sizes, at::kDouble).mul_(2).sub_(1));
  x.masked_fill_(at::randint(0, 8, sizes) == 0, infinity);
  return x.to(type);
}

at::Tensor with_nan(at::Tensor x) { return x.masked_fill_(at::randint(0, 20, x.sizes()) == 0, kNan); }

class MaxPool : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(7); }
};

INSTANTIATE_TEST_SUITE_P(Types, MaxPool, testing::Values(at::kFloat, at::kBFloat16, at::kDouble, at::kHalf),
                         [](const auto& param) { return std::string(c10::toString(param.param)); });

TEST(MaxPoolOfProgram, HasTheseLoops) {
  for (const auto* name : {"aten::max_pool2d_with_indices", "aten::max_pool2d_with_indices_backward"}) {
    const auto table = c10::Dispatcher::singleton().findSchemaOrThrow(name, "").dumpComputedTable();
    EXPECT_TRUE(std::regex_search(table, std::regex("(^|\n)CPU: registered at [^\n]*yoke/train/own_kernels.cpp")))
        << table;
  }
}

/// Square windows, of which each begins two numbers after the one before.
detail::MaxPool pool_of(int64_t height, int64_t width, int64_t window) {
  const int64_t out_height = (height - window) / 2 + 1, out_width = (width - window) / 2 + 1;
  return {height, width, out_height, out_width, window, window, 2, 2, 0, 0};
}

TEST(MaxPoolOfProgram, TheseLoopsComputeWhatTheyCan) {
  for (const int64_t window : {2, 3}) {
    const auto pool = pool_of(6, 9, window);
    auto x = numbers({3, 6, 9}, at::kFloat);
    const auto is_computed = [&] {
      const auto y = at::empty({3, pool.out_height, pool.out_width});
      const auto index = at::empty(y.sizes(), at::kLong);
      return detail::pool_planes(pool, x.const_data_ptr<float>(), 3, y.mutable_data_ptr<float>(),
                                 index.mutable_data_ptr<int64_t>());
    };
    EXPECT_TRUE(is_computed());
    x[1][1][1] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(is_computed());
  }
}

TEST(MaxPoolOfProgram, TheseLoopsComputeChannelsLast) {
  const auto pool = pool_of(5, 7, 2);
  constexpr int64_t kChannels = 11;
  const auto x = numbers({2, kChannels, 5, 7}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
  const auto [their_y, their_index] = at::cpu::max_pool2d_with_indices(x, {2, 2});
  const auto y = at::zeros_like(their_y), index = at::zeros_like(their_index), gradient = at::randn_like(y);
  detail::pool_channels_last(pool, x.const_data_ptr<float>(), kChannels, 0, 2 * pool.out_height,
                             y.mutable_data_ptr<float>(), index.mutable_data_ptr<int64_t>());
  EXPECT_TRUE(are_same(y, their_y));
  EXPECT_TRUE(are_same(index, their_index));

  const auto image = at::empty_like(x[0]);
  const auto is_spread = [&] {
    return detail::spread_channels_last(pool, gradient.const_data_ptr<float>(), index.const_data_ptr<int64_t>(),
                                        kChannels, image.mutable_data_ptr<float>());
  };
  EXPECT_TRUE(is_spread());
  const auto expected =
      at::cpu::max_pool2d_with_indices_backward(gradient, x, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, index);
  EXPECT_TRUE(at::equal(image, expected[0]));
  index[0][kChannels - 1][1][2] += 2;  // it is not in its window
  EXPECT_FALSE(is_spread());
}

TEST_P(MaxPool, SquaresOfAllWidths) {
  for (int64_t width = 2; width <= 40; ++width) {
    for (const int64_t height : {2, 3, 6}) {
      const auto x = numbers({2, 3, height, width}, GetParam());
      compare(x);
      compare(numbers(x.sizes(), GetParam(), kInfinity));
      compare(x.clone().masked_fill_(at::randint(0, 8, x.sizes()) == 0, kInfinity));
      compare(with_nan(x.clone()));
    }
  }
}

TEST_P(MaxPool, AllWindows) {
  for (const int64_t window : {1, 2, 3, 4, 5, 7}) {
    for (const int64_t other : {1, 2, 3, 5}) {
      for (const int64_t stride : {1, 2, 3, 4}) {
        for (const int64_t padding : {0, 1, 2}) {
          if (2 * padding > std::min(window, other)) continue;
          const Case c{.window = {window, other},
                       .stride = {stride, stride == 3 ? 1 : stride},
                       .padding = {padding, padding / 2}};
          for (const int64_t width : {7, 8, 15, 21}) {
            const auto x = numbers({2, 9, 11, width}, GetParam());
            compare(x, c);
            if (width == 21) compare(with_nan(x.clone()), c);
          }
        }
      }
    }
  }
}

TEST_P(MaxPool, ChannelsLast) {
  for (const int64_t channels : {1, 7, 8, 9, 16, 23, 40}) {
    for (const int64_t window : {1, 2, 3, 5}) {
      for (const int64_t other : {2, 3}) {
        for (const int64_t stride : {1, 2, 3, 5}) {
          for (const int64_t padding : {0, 1, 2}) {
            if (2 * padding > std::min(window, other)) continue;
            const Case c{.window = {window, other},
                         .stride = {stride, std::max(stride, other)},
                         .padding = {padding, padding / 2}};
            for (const int64_t width : {6, 9}) {
              const auto x =
                  numbers({2, channels, width + 4, width}, GetParam()).contiguous(at::MemoryFormat::ChannelsLast);
              compare(x, c);
              compare(x.clone().masked_fill_(at::randint(0, 8, x.sizes()) == 0, kInfinity), c);
              compare(with_nan(x.clone()), c);
            }
          }
        }
      }
    }
  }
}

TEST_P(MaxPool, ChannelsLastOfOtherStrides) {
  const auto x = numbers({4, 24, 9, 12}, GetParam()).contiguous(at::MemoryFormat::ChannelsLast);
  compare(x.narrow(1, 3, 16));
  compare(x.narrow(2, 1, 6));
  compare(x.slice(0, 0, 4, 2));
  compare(x.expand({4, 24, 9, 12}));
  compare(x[0]);
}

TEST_P(MaxPool, GradientsOfOtherStrides) {
  const auto x = numbers({3, 16, 8, 8}, GetParam()).contiguous(at::MemoryFormat::ChannelsLast);
  const auto [y, index] = at::max_pool2d_with_indices(x, {2, 2});
  for (const auto& gradient :
       {at::randn({1, 1, 1, 1}).to(GetParam()).expand(y.sizes()), at::randn({3, 16, 4, 4}).to(GetParam()),
        at::randn({3, 4, 4, 16}).to(GetParam()).permute({0, 3, 1, 2})}) {
    for (const auto& its_index : {index, index.contiguous()}) {
      EXPECT_TRUE(are_same(
          at::max_pool2d_with_indices_backward(gradient, x, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, its_index),
          at::cpu::max_pool2d_with_indices_backward(gradient, x, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, its_index)));
    }
  }
  const auto foreign = at::full_like(index, 63);  // no window but the last one has this place
  EXPECT_TRUE(
      are_same(at::max_pool2d_with_indices_backward(y, x, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, foreign),
               at::cpu::max_pool2d_with_indices_backward(y, x, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, foreign)));
}

TEST_P(MaxPool, WhatLibtorchComputes) {
  const auto x = numbers({2, 8, 9, 11}, GetParam());
  compare(x, {.window = {3, 3}, .ceil_mode = true});
  compare(x, {.window = {3, 3}, .dilation = {2, 2}});
  compare(x, {.window = {2}, .stride = {}, .padding = {0}, .dilation = {1}});
  compare(x[0]);
  compare(x.transpose(2, 3));
  compare(x.narrow(3, 1, 9));
  compare(x.permute({1, 0, 2, 3}));
  compare(x.narrow(0, 0, 0));
  compare(x.expand({2, 8, 9, 11}).narrow(1, 0, 1).expand({2, 5, 9, 11}));
  compare(numbers({1, 1, 2, 2}, GetParam()));
  compare(numbers({3, 5, 1, 1}, GetParam()), {.stride = {1, 1}, .padding = {1, 1}});
  compare(numbers({4, 1, 6, 6}, GetParam()).contiguous(at::MemoryFormat::ChannelsLast));
}

TEST_P(MaxPool, LargeImagesOnSeveralThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  const auto x = numbers({9, 16, 65, 67}, GetParam());
  for (const Case& c : {Case{}, Case{.window = {3, 3}, .padding = {1, 1}}}) {
    compare(x, c);
    compare(with_nan(x.clone()), c);
    compare(x.contiguous(at::MemoryFormat::ChannelsLast), c);
  }
  at::set_num_threads(threads);
}

TEST(MaxPoolOfProgram, GradientsAndOneDimensionArrive) {
  auto x = at::randn({2, 3, 8, 8}).requires_grad_();
  const auto y = at::max_pool2d(x, {2, 2});
  y.sum().backward();
  EXPECT_EQ(x.grad().sum().item<float>(), 2 * 3 * 4 * 4);
  EXPECT_TRUE(at::equal(std::get<0>(at::cpu::max_pool2d_with_indices(x.grad() * (x.detach() + 100), {2, 2})),
                        y.detach() + 100));
  const auto line = at::randn({2, 3, 21}).requires_grad_();
  const auto pooled = at::max_pool1d(line, 3, 2, 1);
  const auto expected =
      std::get<0>(at::cpu::max_pool2d_with_indices(line.detach().unsqueeze(-2), {1, 3}, {1, 2}, {0, 1}));
  EXPECT_TRUE(are_same(pooled.detach(), expected.squeeze(-2)));
}

TEST(MaxPoolOfProgram, ErrorsAreLibtorchs) {
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  const auto x = at::randn({1, 1, 4, 4});
  for (const Case& c : {Case{.window = {2, 2, 2}}, Case{.window = {0, 2}}, Case{.stride = {0, 0}},
                        Case{.padding = {2, 0}}, Case{.padding = {-1, 0}}, Case{.window = {5, 5}}}) {
    const auto ours =
        message([&] { at::max_pool2d_with_indices(x, c.window, c.stride, c.padding, c.dilation, c.ceil_mode); });
    EXPECT_EQ(ours, message([&] {
                at::cpu::max_pool2d_with_indices(x, c.window, c.stride, c.padding, c.dilation, c.ceil_mode);
              }));
    EXPECT_NE(ours, "");
  }
}

}  // namespace
}  // namespace yoke::train
