#include "yoke/container/meeting.h"

#include <gtest/gtest.h>

namespace yoke::container {
namespace {

TEST(Meeting, TheFirstProgramSaysWhetherTheUsersProgramRuns) {
  const auto started = parse_beginning("started");
  ASSERT_TRUE(started);
  EXPECT_EQ(started->status, 0);
  const auto failed = parse_beginning("failed 127 cannot start x: No such file or directory");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->status, 127);
  EXPECT_EQ(failed->why, "cannot start x: No such file or directory");
  for (const char* text : {"", "failed", "failed 127", "failed 0 x", "failed 256 x", "failed x y", "started now"}) {
    EXPECT_FALSE(parse_beginning(text)) << text;
  }
}

}  // namespace
}  // namespace yoke::container
