#include "yoke/launch/output/failure_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ErrorReport at(int64_t seconds) {
  return {"E", "", std::chrono::system_clock::time_point(std::chrono::seconds(seconds))};
}

TEST(FailureReport, TheRootCauseIsTheEarliestThatWasWritten) {
  EXPECT_EQ(root_cause({.first_exited = 3}), 3);
  EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, at(20)}, {2, at(10)}, {3, at(11)}}}), 2);
  EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, at(10)}, {3, at(10)}}}), 3) << "the same second";
  // Rank 3 was killed by a signal because rank 1 failed, or rank 1 failed because of that: who wrote knows why.
  EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, at(10)}}}), 1);
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

}  // namespace
}  // namespace yoke::launch
