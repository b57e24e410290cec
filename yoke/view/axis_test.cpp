#include "yoke/view/axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace yoke::view {
namespace {

using testing::ElementsAre;

std::vector<std::string> labels(const Axis& axis, int64_t wanted = 5) {
  std::vector<std::string> texts;
  for (const auto& tick : axis.ticks(wanted)) texts.push_back(tick.label);
  return texts;
}

TEST(Axis, TicksAreRound) {
  using enum Axis::Kind;
  EXPECT_THAT(labels({kLinear, 0, 1}), ElementsAre("0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_THAT(labels({kLinear, -0.31, 0.27}), ElementsAre("-0.3", "-0.2", "-0.1", "0", "0.1", "0.2"));
  EXPECT_THAT(labels({kLinear, 0, 3000}), ElementsAre("0", "500", "1000", "1500", "2000", "2500", "3000"));
  EXPECT_THAT(labels({kLinear, 0, 1e7}), ElementsAre("0", "2e6", "4e6", "6e6", "8e6", "1e7"));
  EXPECT_THAT(labels({kLinear, 2.30258, 2.30261}),
              ElementsAre("2.302580", "2.302585", "2.302590", "2.302595", "2.302600", "2.302605", "2.302610"));
  EXPECT_THAT(labels({kLinear, 1e-7, 3e-7}, 2), ElementsAre("1e-7", "2e-7", "3e-7"));
  EXPECT_THAT(labels({kLinear, 5, 5}, 2), ElementsAre("4", "6"));
  EXPECT_THAT(labels({kLog, 1e-4, 2}), ElementsAre("0.0001", "0.001", "0.01", "0.1", "1"));
  EXPECT_THAT(labels({kLog, 1e-12, 1e12}, 4), ElementsAre("1e-12", "1e-5", "100", "1e9"));
  EXPECT_THAT(labels({kLog, 0.3, 6}), ElementsAre("0.5", "1", "2", "5"));
  EXPECT_THAT(labels({kLog, 2.1, 2.2}, 2), ElementsAre("2.10", "2.15", "2.20"));
  EXPECT_THAT(labels({kTime, 0, 7200}), ElementsAre("0", "30:00", "1:00:00", "1:30:00", "2:00:00"));
}

// For any range, all ticks are within the range and ascending, and their labels differ.
TEST(Axis, TicksOfExtremeRanges) {
  constexpr double kMax = std::numeric_limits<double>::max(), kTiny = std::numeric_limits<double>::denorm_min();
  for (const auto& [min, max] : {std::pair{-kMax, kMax},
                                 {0., kTiny},
                                 {kMax, kMax},
                                 {-kMax, -kMax},
                                 {0., 0.},
                                 {1e16, 1e16 + 2},
                                 {1., std::nextafter(1., 2.)},
                                 {-1e-300, 1e300},
                                 {kTiny, kMax}}) {
    for (const auto kind : {Axis::Kind::kLinear, Axis::Kind::kLog, Axis::Kind::kTime}) {
      if ((kind == Axis::Kind::kLog && !(min > 0)) || (kind == Axis::Kind::kTime && min < 0)) continue;
      const Axis axis(kind, min, max);
      for (const int64_t wanted : {0, 1, 5, 40}) {
        const auto ticks = axis.ticks(wanted);
        ASSERT_GE(ticks.size(), 1u) << min << ' ' << max;
        EXPECT_LE(std::ssize(ticks), 2 * wanted + 8);
        std::set<std::string> different;
        for (size_t i = 0; i < ticks.size(); ++i) {
          different.insert(ticks[i].label);
          EXPECT_GE(axis.fraction(ticks[i].value), -1e-6) << ticks[i].label << ": " << min << ' ' << max;
          EXPECT_LE(axis.fraction(ticks[i].value), 1 + 1e-6) << min << ' ' << max;
          EXPECT_TRUE(i == 0 || ticks[i].value > ticks[i - 1].value);
        }
        EXPECT_EQ(different.size(), ticks.size()) << min << ' ' << max;
      }
    }
  }
}

TEST(Axis, FractionsAreThoseOfTheRange) {
  EXPECT_DOUBLE_EQ(Axis(Axis::Kind::kLinear, -2, 6).fraction(0), 0.25);
  EXPECT_DOUBLE_EQ(Axis(Axis::Kind::kLog, 0.01, 100).fraction(0.1), 0.25);
  EXPECT_DOUBLE_EQ(Axis(Axis::Kind::kLinear, 7, 7).fraction(7), 0.5);
}

}  // namespace
}  // namespace yoke::view
