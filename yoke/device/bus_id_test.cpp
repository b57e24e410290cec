#include "yoke/device/bus_id.h"

#include <gtest/gtest.h>

namespace yoke::device {
namespace {

TEST(BusId, IsWrittenAsSysfsDoes) {
  for (const auto& [text, id] : {std::pair{"0000:c1:00.0", "0000:c1:00.0"},
                                 {"00000000:C1:00.0", "0000:c1:00.0"},
                                 {"c1:00.0", "0000:c1:00.0"},
                                 {"0000:3B:1f", "0000:3b:1f.0"},
                                 {"00010000:E1:00.0", "10000:e1:00.0"},
                                 {"10000:e1:00.0", "10000:e1:00.0"},
                                 {"03f8cfdd:00:00.0", "3f8cfdd:00:00.0"},
                                 {"0001:00:00.7", "0001:00:00.7"}}) {
    EXPECT_EQ(parse_bus_id(text), id) << text;
  }
}

TEST(BusId, OtherTextsAreNone) {
  for (const char* text : {"", "0", "0:1", "0:1.0", "c1", "c1:0", "c1:000.0", "c1:00.", "c1:00.0.0", "0000:c1:00.0 ",
                           "000000000:c1:00.0", ":c1:00.0", "g1:00.0", "-1:c1:00.0", "0000:c1:-1.0", "a:b:c:d"}) {
    EXPECT_EQ(parse_bus_id(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace yoke::device
