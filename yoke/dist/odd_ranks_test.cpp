#include "yoke/dist/odd_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::dist {
namespace {

using ::testing::ElementsAre;

TEST(OddRanks, AreThoseThatMostDifferFrom) {
  EXPECT_THAT(odd_ranks({"a", "a", "b", "a"}, {0, 1, 2, 3}), ElementsAre(2));
  EXPECT_THAT(odd_ranks({"b", "a", "a"}, {4, 5, 7}), ElementsAre(4));
  EXPECT_THAT(odd_ranks({"a", "b", "c", "a", "a"}, {0, 1, 2, 3, 4}), ElementsAre(1, 2));
  EXPECT_THAT(odd_ranks({"a", "b"}, {0, 1}), ElementsAre(0, 1)) << "nobody knows which is right";
  EXPECT_THAT(odd_ranks({"a", "b", "a", "b"}, {0, 1, 2, 3}), ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace yoke::dist
