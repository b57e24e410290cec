#include "yoke/base/subordinate_ids.h"

#include <gtest/gtest.h>

namespace yoke {
namespace {

TEST(SubordinateIds, HaveAnOwner) {
  constexpr const char* kSubuid = "# a line of somebody\nada:100000:65536\n1002:165536:65536\nbroken:x:y\n";
  EXPECT_EQ(subordinate_owner(100'000, kSubuid), "ada");
  EXPECT_EQ(subordinate_owner(165'535, kSubuid), "ada");
  EXPECT_EQ(subordinate_owner(165'536, kSubuid), "1002");
  EXPECT_EQ(subordinate_owner(99'999, kSubuid), std::nullopt);
  EXPECT_EQ(subordinate_owner(231'072, kSubuid), std::nullopt);
}

}  // namespace
}  // namespace yoke
