// yoke/dist/shared_memory_test.cpp compares the kernels with libtorch's operators.
#include "yoke/dist/shared/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace yoke::dist::shared {
namespace {

template <class T>
std::vector<T> reduced(Type type, Reduction reduction, const std::vector<std::vector<T>>& given) {
  std::vector<T> result(given[0].size());
  std::vector<const std::byte*> sources;
  for (const auto& one : given) sources.push_back(reinterpret_cast<const std::byte*>(one.data()));
  reduce(type, reduction, reinterpret_cast<std::byte*>(result.data()), sources, static_cast<int64_t>(result.size()));
  return result;
}

TEST(SharedKernels, ReduceInTheOrderOfRanks) {
  // (1e8 - 1e8) + 1 is 1, and 1e8 + (-1e8 + 1) is 0 in float.
  const std::vector<std::vector<float>> given = {{1e8f}, {-1e8f}, {1.0f}};
  EXPECT_EQ(reduced(Type::kF32, Reduction::kSum, given)[0], 1.0f);
}

TEST(SharedKernels, AnySizeAndNumberOfRanks) {
  for (const size_t num_ranks : {1, 2, 3, 4, 7}) {
    for (const size_t size : {0, 1, 7, 1023, 1024, 1025, 3000}) {
      std::vector<std::vector<int32_t>> given(num_ranks, std::vector<int32_t>(size));
      std::vector<int32_t> sum(size), most(size, std::numeric_limits<int32_t>::min());
      for (size_t rank = 0; rank < num_ranks; ++rank) {
        for (size_t i = 0; i < size; ++i) {
          given[rank][i] = static_cast<int32_t>((i * 31 + rank * 7919) % 2003) - 1000;
          sum[i] += given[rank][i];
          most[i] = std::max(most[i], given[rank][i]);
        }
      }
      EXPECT_EQ(reduced(Type::kI32, Reduction::kSum, given), sum);
      EXPECT_EQ(reduced(Type::kI32, Reduction::kMax, given), most);
    }
  }
}

TEST(SharedKernels, TheResultMayReplaceAnySource) {
  for (const size_t place : {0, 1, 2}) {
    std::vector<std::vector<int64_t>> given(3, std::vector<int64_t>(2500));
    for (size_t rank = 0; rank < 3; ++rank) {
      for (size_t i = 0; i < 2500; ++i) given[rank][i] = static_cast<int64_t>(i * (rank + 1));
    }
    std::vector<const std::byte*> sources;
    for (const auto& one : given) sources.push_back(reinterpret_cast<const std::byte*>(one.data()));
    reduce(Type::kI64, Reduction::kSum, reinterpret_cast<std::byte*>(given[place].data()), sources, 2500);
    for (size_t i = 0; i < 2500; ++i) ASSERT_EQ(given[place][i], static_cast<int64_t>(6 * i));
  }
}

TEST(SharedKernels, IntegersWrapAroundAndBoolsStayBools) {
  EXPECT_EQ(reduced<int8_t>(Type::kI8, Reduction::kSum, {{100}, {100}})[0], static_cast<int8_t>(200));
  EXPECT_EQ(reduced<int64_t>(Type::kI64, Reduction::kProduct, {{INT64_MAX}, {2}})[0], -2);
  EXPECT_EQ(reduced<uint8_t>(Type::kBool, Reduction::kSum, {{1, 1, 0}, {1, 0, 0}}), (std::vector<uint8_t>{1, 1, 0}));
  EXPECT_EQ(reduced<uint8_t>(Type::kBool, Reduction::kProduct, {{1, 1, 0}, {1, 0, 0}}),
            (std::vector<uint8_t>{1, 0, 0}));
}

TEST(SharedKernels, NanIsTheLeastAndTheGreatest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto reduction : {Reduction::kMin, Reduction::kMax}) {
    const auto result = reduced<float>(Type::kF32, reduction, {{nan, 1, 1}, {1, nan, 2}});
    EXPECT_TRUE(std::isnan(result[0]) && std::isnan(result[1]));
    EXPECT_EQ(result[2], reduction == Reduction::kMin ? 1 : 2);
  }
}

/// The value of a float16 by its definition.
double half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double absolute = exponent == 31  ? (mantissa == 0 ? INFINITY : NAN)
                          : exponent == 0 ? std::ldexp(mantissa, -24)
                                          : std::ldexp(mantissa + 1024, exponent - 25);
  return bits & 0x8000 ? -absolute : absolute;
}

// Each float16 plus zero is itself, and the sum of two is the nearest float16, the even one of two that are as near.
TEST(SharedKernels, Float16IsRoundedToTheNearest) {
  std::vector<uint16_t> all(65536), zeros(65536, 0), other(65536);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<uint16_t>(i);
    other[i] = static_cast<uint16_t>(i * 40503 + 12345);
  }
  const auto same = reduced<uint16_t>(Type::kF16, Reduction::kSum, {all, zeros});
  const auto sums = reduced<uint16_t>(Type::kF16, Reduction::kSum, {all, other});
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(half(all[i]))) {
      ASSERT_TRUE(std::isnan(half(same[i])));
      continue;
    }
    ASSERT_EQ(half(same[i]), half(all[i])) << i;
    const double exact = half(all[i]) + half(other[i]);  // exact in double
    if (std::isnan(exact)) continue;
    if (std::abs(exact) >= 65520) {
      ASSERT_TRUE(std::isinf(half(sums[i]))) << i;
      continue;
    }
    const double error = std::abs(half(sums[i]) - exact);
    for (const int step : {-1, 1}) {
      const double neighbour = half(static_cast<uint16_t>(sums[i] + step));
      if (std::isnan(neighbour) || std::isinf(neighbour) || (neighbour < 0) != (exact < 0)) continue;
      ASSERT_LE(error, std::abs(neighbour - exact)) << i;
      if (error == std::abs(neighbour - exact) && error != 0) {
        ASSERT_EQ(sums[i] & 1, 0) << i;
      }
    }
  }
}

TEST(SharedKernels, BFloat16IsRoundedOnce) {
  const auto bits = [](float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); };
  // Each sum of two of them would be rounded to 256.
  EXPECT_EQ(reduced<uint16_t>(Type::kBF16, Reduction::kSum, {{bits(256)}, {bits(1)}, {bits(1)}})[0], bits(258));
  EXPECT_EQ(reduced<uint16_t>(Type::kBF16, Reduction::kSum, {{bits(256)}, {bits(1)}})[0], bits(256)) << "even";
  EXPECT_EQ(reduced<uint16_t>(Type::kBF16, Reduction::kSum, {{bits(258)}, {bits(1)}})[0], bits(260)) << "even";
  EXPECT_EQ(reduced<uint16_t>(Type::kBF16, Reduction::kSum, {{0x7f80}, {0xff80}})[0], 0x7fc0) << "NaN";
}

}  // namespace
}  // namespace yoke::dist::shared
