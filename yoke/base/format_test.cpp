#include "yoke/base/format.h"

#include <gtest/gtest.h>

#include <cmath>

namespace yoke {
namespace {

using std::chrono::duration;

TEST(Format, DurationsAreShort) {
  EXPECT_EQ(format_duration(duration<double>(0.04)), "0.0 s");
  EXPECT_EQ(format_duration(duration<double>(9.94)), "9.9 s");
  EXPECT_EQ(format_duration(duration<double>(9.96)), "10 s");
  EXPECT_EQ(format_duration(duration<double>(187)), "3:07");
  EXPECT_EQ(format_duration(duration<double>(3750)), "1:02:30");
  EXPECT_EQ(format_duration(duration<double>(2 * 86'400 + 3 * 3600)), "2 d 3 h");
  EXPECT_EQ(format_duration(duration<double>(NAN)), "?");
}

TEST(Format, RoughDurationsAreForSentences) {
  using std::chrono::seconds;
  EXPECT_EQ(format_rough_duration(seconds(-3)), "0 s");
  EXPECT_EQ(format_rough_duration(seconds(59)), "59 s");
  EXPECT_EQ(format_rough_duration(seconds(2459)), "40 min");
  EXPECT_EQ(format_rough_duration(seconds(7200)), "2 h");
  EXPECT_EQ(format_rough_duration(seconds(7530)), "2 h 5 min");
  EXPECT_EQ(format_rough_duration(seconds(3 * 86'400 + 4 * 3600 + 59)), "3 d 4 h");
}

TEST(Format, BytesAreBinary) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((int64_t{1} << 30) - 1), "1.0 GiB");
  EXPECT_EQ(format_bytes(int64_t{80} << 30), "80.0 GiB");
}

TEST(Format, OneOfAThingIsNotMany) {
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(2, "rank"), "2 ranks");
}

TEST(Format, RatesKeepThreeDigits) {
  EXPECT_EQ(format_rate(950), "950");
  EXPECT_EQ(format_rate(999.6), "1.00 k");
  EXPECT_EQ(format_rate(48'240), "48.2 k");
  EXPECT_EQ(format_rate(1.2e6), "1.20 M");
  EXPECT_EQ(format_rate(NAN), "?");
}

}  // namespace
}  // namespace yoke
