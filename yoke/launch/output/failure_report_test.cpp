#include "yoke/launch/output/failure_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ErrorReport at(int64_t time_s) {
  return {"E", "", std::chrono::system_clock::time_point(std::chrono::seconds(time_s))};
}

TEST(FailureReport, ShowsWhatIsKnown) {
  EXPECT_THAT(describe_failure("yoke run", {.rank = 2}), IsEmpty());
  EXPECT_THAT(describe_failure("yoke run", {.rank = 2,
                                            .report = ErrorReport{"Error: \x1b[2Jno", "", {}},
                                            .last_lines = {"a", "b\x07"},
                                            .log = "/l/2/stderr.log"}),
              ElementsAre("yoke run: rank 2 failed: Error: ?[2Jno", "yoke run: the last lines of rank 2:", "  a",
                          "  b?", "yoke run: the log of rank 2 is /l/2/stderr.log"));
}

TEST(FailureReport, LeavesOutTheFramesOfLibtorch) {
  EXPECT_THAT(
      describe_failure("yoke run", {.rank = 2,
                                    .last_lines = {"first: sizes differ", "Exception raised from check at a.cpp:1:",
                                                   "frame #0: c10::Error::Error(...)"}}),
      ElementsAre("yoke run: the last lines of rank 2:", "  first: sizes differ"));
}

TEST(FailureReport, FindsWhatIsKnownOfTheRootCause) {
  const auto failed = failed_rank({.first_exited = 3,
                                   .reports = {{1, at(10)}},
                                   .logs = {{1, "/l/1"}, {3, "/l/3"}},
                                   .wait_statuses = {{1, 15}, {3, 3 << 8}}});
  EXPECT_EQ(failed.rank, 1);
  EXPECT_EQ(failed.wait_status, 15);
  EXPECT_EQ(failed.report->time, at(10).time);
  EXPECT_EQ(failed.log, "/l/1");
}

TEST(FailureReport, ALongMessageIsCut) {
  const auto lines = describe_failure("yoke run", {.report = ErrorReport{std::string(1 << 20, 'x'), "", {}}});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_LT(lines[0].size(), 5000U);
}

TEST(FailureReport, HandsOnTheReportOrTheReason) {
  const auto now = at(50).time;
  const FailedRank silent{.rank = 1, .wait_status = 9};
  const FailedRank talker{.rank = 1, .wait_status = 3 << 8, .report = at(10)};
  EXPECT_EQ(hand_on(&talker, "reason", now).report.time, at(10).time);
  EXPECT_EQ(hand_on(&talker, "reason", now).error_code, 3);
  EXPECT_EQ(hand_on(&silent, "reason", now).report.message, "reason");
  EXPECT_EQ(hand_on(&silent, "reason", now).error_code, -9);
  EXPECT_EQ(hand_on(nullptr, "reason", now).error_code, 0);
  EXPECT_EQ(hand_on(nullptr, "reason", now).report.time, now);
}

}  // namespace
}  // namespace yoke::launch
