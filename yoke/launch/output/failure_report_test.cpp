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

TEST(FailureReport, TheRootCauseIsTheEarliestThatWasWritten) {
  EXPECT_EQ(root_cause({.first_exited = 3}), 3);
  EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, at(20)}, {2, at(10)}, {3, at(11)}}}), 2);
  EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, at(10)}, {3, at(10)}}}), 3) << "the same second";
  EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, at(10)}}}), 1) << "when rank 3 ended is not known";
  // A killed rank writes no file; the others write that they lost it.
  FailureFacts facts{.first_exited = 3, .first_failure_at = at(11).time, .reports = {{1, at(12)}, {2, at(11)}}};
  EXPECT_EQ(root_cause(facts), 3);
  facts.reports[2] = at(10);
  EXPECT_EQ(root_cause(facts), 2) << "rank 2 failed a second before, and took its time to end";
}

// The words of a rank of yoke, of Gloo (gloo/transport/tcp/pair.cc), of the TCPStore (c10d/Utils.hpp), and of NCCL.
TEST(FailureReport, ALostConnectionIsNotTheCauseOfARanksOwnError) {
  for (const auto* words :
       {"rank 3: collective 57 lost its connection to another rank: rank 1 has probably ended",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
        "[127.0.0.1]:41234",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:452] Read error [10.0.0.2]:41234: "
        "Connection reset by peer",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:305] writev [10.0.0.2]:41234: Broken pipe",
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
        "server shutdown or crash?",
        "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1, remote process exited or there was a network error, "
        "NCCL version 2.27.7\nncclRemoteError: A call failed possibly due to a network error or a remote process "
        "exiting prematurely."}) {
    const auto lost = [&](int64_t time_s) { return ErrorReport{words, "", at(time_s).time}; };
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, at(10)}, {3, lost(10)}}}), 1) << words;
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, at(11)}, {3, lost(10)}}}), 1) << "took its time to write";
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{0, lost(10)}, {1, lost(9)}, {3, lost(10)}}}), 3);
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, at(12)}, {3, lost(10)}}}), 3) << "when it was stopped";
    EXPECT_EQ(root_cause({.first_exited = 3, .first_failure_at = at(11).time, .reports = {{1, lost(10)}}}), 3)
        << "rank 3 was killed";
  }
}

TEST(FailureReport, APipeOrConnectionOfTheRanksOwnIsACause) {
  for (const auto* words : {"BrokenPipeError: [Errno 32] Broken pipe", "cannot write to the log: Broken pipe",
                            "ConnectionResetError: [Errno 104] Connection reset by peer",
                            "the server of the data: Connection closed by peer"}) {
    const ErrorReport own{words, "", at(10).time};
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, at(11)}, {3, own}}}), 3) << words;
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, own}, {3, at(11)}}}), 1) << words;
  }
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
