#include "yoke/launch/plan/streams.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

TEST(Streams, OneNumberIsForAllRanks) {
  EXPECT_EQ(StreamChoice("0").of(0), Streams{});
  EXPECT_EQ(StreamChoice("1").of(5), (Streams{.out = true}));
  EXPECT_EQ(StreamChoice("2").of(5), (Streams{.err = true}));
  EXPECT_EQ(StreamChoice("3").of(5), (Streams{.out = true, .err = true}));
  EXPECT_TRUE(StreamChoice("0").is_empty());
  EXPECT_TRUE(StreamChoice().is_empty());
  EXPECT_FALSE(StreamChoice("2").is_empty());
}

TEST(Streams, AListIsForThoseThatItNames) {
  const StreamChoice choice("0:3,2:1,11:2");
  EXPECT_EQ(choice.of(0), (Streams{.out = true, .err = true}));
  EXPECT_EQ(choice.of(1), Streams{});
  EXPECT_EQ(choice.of(2), (Streams{.out = true}));
  EXPECT_EQ(choice.of(11), (Streams{.err = true}));
  EXPECT_FALSE(choice.is_empty());
  EXPECT_TRUE(StreamChoice("0:0,1:0").is_empty());
}

TEST(Streams, RefusesTheRest) {
  for (const char* text : {"", "4", "-1", "all", "0:", ":1", "0:4", "0:1,", ",0:1", "0:1,2", "a:1", "0:1 ", "-1:1"}) {
    EXPECT_THROW(StreamChoice{text}, Error) << "'" << text << "'";
  }
}

}  // namespace
}  // namespace yoke::launch
