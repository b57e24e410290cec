#include "yoke/slurm/words/version.h"

#include <gtest/gtest.h>

namespace yoke::slurm {
namespace {

TEST(SlurmVersion, IsRead) {
  EXPECT_EQ(parse_version("slurm 22.05.8"), (Version{22, 5, 8}));
  EXPECT_EQ(parse_version("23.11"), (Version{23, 11, 0}));
  EXPECT_EQ(parse_version("25.05.0-1"), (Version{25, 5, 0}));
  for (const auto* text : {"", "slurm", "22", "a.b", "22.13", "22.05.x", "1.2.3.4", "19.05"}) {
    EXPECT_EQ(parse_version(text), std::nullopt) << text;
  }
}

TEST(SlurmVersion, IsOrderedByTime) {
  EXPECT_LT((Version{22, 5, 8}), (Version{23, 2, 0}));
  EXPECT_LT((Version{23, 2, 0}), (Version{23, 11, 0}));
  EXPECT_EQ(to_text(Version{23, 2, 7}), "23.02");
}

}  // namespace
}  // namespace yoke::slurm
