#include "yoke/base/quantity.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace yoke {
namespace {

TEST(Quantity, LengthsOfTime) {
  const std::vector<std::pair<std::string, int64_t>> rows = {{"90s", 90},
                                                             {"30m", 1800},
                                                             {"4h", 14'400},
                                                             {"7d", 604'800},
                                                             {"1d12h", 129'600},
                                                             {"1h30m10s", 5410},
                                                             {"15", 15},
                                                             {"", 0},
                                                             {"0h", 0},
                                                             {"h", 0},
                                                             {"4x", 0},
                                                             {"30m4h", 0},
                                                             {"4h30", 0},
                                                             {"-4h", 0},
                                                             {"4 h", 0},
                                                             {"4.5h", 0},
                                                             {"1h1h", 0},
                                                             {"99999d", 0},
                                                             {"9999999999999999999s", 0}};
  for (const auto& [text, expected] : rows) {
    const auto length = parse_length(text);
    EXPECT_EQ(length ? length->count() : 0, expected) << text;
  }
}

TEST(Quantity, SizesOfMemory) {
  const std::vector<std::pair<std::string, int64_t>> rows = {{"20GiB", int64_t{20} << 30},
                                                             {"500MiB", 500 << 20},
                                                             {"1TiB", int64_t{1} << 40},
                                                             {"1024KiB", 1 << 20},
                                                             {"4096B", 4096},
                                                             {"20", 0},
                                                             {"20GB", 0},
                                                             {"20G", 0},
                                                             {"GiB", 0},
                                                             {"0GiB", 0},
                                                             {"-1GiB", 0},
                                                             {"1.5GiB", 3 << 29},
                                                             {"0.5MiB", 1 << 19},
                                                             {"79.9GiB", 85791971737},
                                                             {"1.GiB", 0},
                                                             {".5GiB", 0},
                                                             {"1.5B", 0},
                                                             {"1.5.5GiB", 0},
                                                             {"0.0GiB", 0},
                                                             {"9999999TiB", 0},
                                                             {"", 0}};
  for (const auto& [text, bytes] : rows) EXPECT_EQ(parse_memory(text).value_or(0), bytes) << text;
}

TEST(Quantity, ARealNumberIsTheWholeText) {
  EXPECT_EQ(parse_real("0.25"), 0.25);
  EXPECT_EQ(parse_real("-1e-3"), -1e-3);
  for (const auto* other : {"", "1 ", " 1", "1,5", "inf", "nan", "1e999", "x"}) {
    EXPECT_EQ(parse_real(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace yoke
