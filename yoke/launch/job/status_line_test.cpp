#include "yoke/launch/job/status_line.h"

#include <gtest/gtest.h>

namespace yoke::launch {
namespace {

TEST(StatusLine, SaysWhatIsUp) {
  JobStatus status{.num_up = 7, .num_ranks = 8, .elapsed = std::chrono::seconds(5)};
  EXPECT_EQ(status_line(status), "yoke run: 7 of 8 ranks up, 5.0 s");
  status.nodes = "2 of 2 to 4";
  status.num_restarts = 1;
  status.restarts.num = 3;
  EXPECT_EQ(status_line(status), "yoke run: 7 of 8 ranks up on 2 of 2 to 4 nodes, 5.0 s, restart 1 of 3");
}

TEST(StatusLine, TimeAloneIsNoChange) {
  const JobStatus before{.num_up = 7, .num_ranks = 8, .nodes = "2 of 2", .elapsed = std::chrono::seconds(5)};
  auto now = before;
  now.elapsed = std::chrono::seconds(6);
  EXPECT_FALSE(has_changed(before, now));
  now.num_up = 6;
  EXPECT_TRUE(has_changed(before, now));
  now = before;
  now.nodes = "1 of 2";
  EXPECT_TRUE(has_changed(before, now));
  now = before;
  now.num_restarts = 1;
  EXPECT_TRUE(has_changed(before, now));
}

}  // namespace
}  // namespace yoke::launch
