#include "yoke/launch/output/culprit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ErrorReport error_at(int64_t time_s) { return {"E", "", std::chrono::system_clock::time_point(seconds(time_s))}; }

TEST(Culprit, TheRootCauseIsTheEarliestThatWasWritten) {
  EXPECT_EQ(root_cause({.first_exited = 3}), 3);
  EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, error_at(20)}, {2, error_at(10)}, {3, error_at(11)}}}), 2);
  EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, error_at(10)}, {3, error_at(10)}}}), 3) << "the same second";
  EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, error_at(10)}}}), 1) << "when rank 3 ended is not known";
  // A killed rank writes no file; the others write that they lost it.
  FailureFacts facts{
      .first_exited = 3, .first_failure_at = error_at(11).time, .reports = {{1, error_at(12)}, {2, error_at(11)}}};
  EXPECT_EQ(root_cause(facts), 3);
  facts.reports[2] = error_at(10);
  EXPECT_EQ(root_cause(facts), 2) << "rank 2 failed a second before, and took its time to end";
}

// The words of a rank of yoke, of Gloo (gloo/transport/tcp/pair.cc), of the TCPStore (c10d/Utils.hpp), and of NCCL.
TEST(Culprit, ALostConnectionIsNotTheCauseOfARanksOwnError) {
  for (const auto* words :
       {"rank 3: collective 57 lost its connection to another rank: rank 1 has probably ended",
        "RuntimeError: Timed out waiting for rank 1 of the group",
        "RuntimeError: Connection closed by peer: rank 1 of the group has ended",
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
    const auto lost = [&](int64_t time_s) { return ErrorReport{words, "", error_at(time_s).time}; };
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, error_at(10)}, {3, lost(10)}}}), 1) << words;
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, error_at(11)}, {3, lost(10)}}}), 1)
        << "took its time to write";
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{0, lost(10)}, {1, lost(9)}, {3, lost(10)}}}), 3);
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, error_at(12)}, {3, lost(10)}}}), 3)
        << "when it was stopped";
    EXPECT_EQ(root_cause({.first_exited = 3, .first_failure_at = error_at(11).time, .reports = {{1, lost(10)}}}), 3)
        << "rank 3 was killed";
  }
}

TEST(Culprit, APipeOrConnectionOfTheRanksOwnIsACause) {
  for (const auto* words : {"BrokenPipeError: [Errno 32] Broken pipe", "cannot write to the log: Broken pipe",
                            "ConnectionResetError: [Errno 104] Connection reset by peer",
                            "the server of the data: Connection closed by peer"}) {
    const ErrorReport own{words, "", error_at(10).time};
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, error_at(11)}, {3, own}}}), 3) << words;
    EXPECT_EQ(root_cause({.first_exited = 3, .reports = {{1, own}, {3, error_at(11)}}}), 1) << words;
  }
}

/// A report of a timeout or of a lost connection, which names the ranks `causes`.
ErrorReport because_of(std::vector<int64_t> causes, int64_t time_s = 10) {
  auto report = error_at(time_s);
  report.message = causes.empty() ? "collective 7 lost its connection to another rank" : "timed out";
  report.cause = {std::move(causes), "had not entered collective 7"};
  return report;
}

/// A report that is certain: of ranks that differ, or of an error that all repeat.
ErrorReport differing(std::vector<int64_t> ranks) {
  auto report = error_at(10);
  report.cause = {std::move(ranks), "differs", FailureCause::Kind::kDiffers};
  return report;
}

constexpr int exit_with(int code) { return code << 8; }  // in the form of wait(2)
constexpr int kWithCore = 0x80;

// Rank 0 ends first in each row.
TEST(Culprit, IsTheEarliestCause) {
  struct Row {
    std::string name;
    FailureFacts facts;
    std::vector<int64_t> ranks;
    std::string what;
  };
  const std::vector<Row> rows = {
      {"nothing is known", {}, {0}, ""},
      {"an error of its own", {.reports = {{0, error_at(10)}}, .states = {{3, {'T', seconds(50)}}}}, {0}, ""},
      {"another one's earlier error",
       {.reports = {{0, {"another error", "", error_at(12).time}}, {2, error_at(10)}}},
       {2},
       "failed first"},
      {"another one's error that led to the timeout",
       {.reports = {{0, because_of({2})}, {2, error_at(11)}}},
       {2},
       "failed first"},
      {"a stopped rank",
       {.reports = {{0, because_of({3})}}, .states = {{3, {'T', seconds(50)}}, {1, {'S'}}}},
       {3},
       "had been stopped for 50 s (SIGSTOP, Ctrl-Z)"},
      {"a debugger",
       {.reports = {{0, because_of({3})}}, .states = {{3, {'t', milliseconds(3)}}}},
       {3},
       "had been stopped by a debugger"},
      {"a stopped rank that the report does not name",
       {.reports = {{0, because_of({})}}, .states = {{3, {'T', seconds(50)}}}},
       {3},
       "had been stopped for 50 s (SIGSTOP, Ctrl-Z)"},
      {"one that waits for the stopped one, in a group of theirs",
       {.reports = {{0, because_of({1})}}, .states = {{1, {'S'}}, {3, {'T', seconds(50)}}}},
       {3},
       "had been stopped for 50 s (SIGSTOP, Ctrl-Z)"},
      {"one that computes, beside a stopped one",
       {.reports = {{0, because_of({1})}}, .states = {{1, {'R'}}, {3, {'T', seconds(1)}}}},
       {1},
       "had not entered collective 7; it was computing"},
      {"one that waits elsewhere",
       {.reports = {{0, because_of({1})}}, .states = {{1, {'S'}}}},
       {1},
       "had not entered collective 7; it was waiting for something else"},
      {"the report of the one that waits names another",
       {.reports = {{0, because_of({1})}, {1, because_of({2})}}, .states = {{2, {'R'}}}},
       {2},
       "had not entered collective 7; it was computing"},
      {"two that wait for each other",
       {.reports = {{0, because_of({1})}, {1, because_of({0})}}},
       {1},
       "had not entered collective 7"},
      {"one that called something else, beside a stopped one",
       {.reports = {{0, {"differs", "", {}, "", {{1}, "called something else", FailureCause::Kind::kDiffers}}}},
        .states = {{1, {'S'}}, {3, {'T', seconds(50)}}}},
       {1},
       "called something else"},
      {"one that differs, and is in the kernel for a moment or long",
       {.reports = {{0, differing({1})}}, .states = {{1, {'D', seconds(50)}}}},
       {1},
       "differs"},
      {"one that is missed, and is in the kernel for a moment",
       {.reports = {{0, because_of({1})}}, .states = {{1, {'D', milliseconds(100)}}}},
       {1},
       "had not entered collective 7"},
      {"one that differs, which all say, beside one that is told to end",
       {.reports = {{0, differing({1})}, {1, differing({1})}, {2, error_at(10)}, {3, differing({1})}}},
       {1},
       "differs"},
      {"two that differ", {.reports = {{0, differing({1, 3})}, {3, differing({1, 3})}}}, {1, 3}, "differs"},
      {"one whose error all others repeat",
       {.reports = {{0, differing({2})}, {1, differing({2})}, {2, error_at(10)}}},
       {2},
       "differs"},
      {"an error before ranks were seen to differ",
       {.reports = {{0, differing({1})}, {2, error_at(9)}}},
       {2},
       "failed first"},
      {"what a stopped rank reports when it is continued to end",
       {.reports = {{0, because_of({2})}, {2, error_at(10)}}, .states = {{2, {'T', milliseconds(5700)}}}},
       {2},
       "had been stopped for 5.7 s (SIGSTOP, Ctrl-Z)"},
      {"what a rank of --replace reports that is told to end",
       {.reports = {{0, because_of({3})},
                    {2, {"yoke::Error: rank 2: ranks were lost, and the job is told to end (main, a.cpp:3)", "", {}}}}},
       {3},
       "had not entered collective 7"},
      {"one that takes long to end for want of memory",
       {.reports = {{0, because_of({1})}, {3, error_at(10)}},
        .wait_statuses = {{0, SIGABRT}, {2, SIGKILL}},
        .killed = {{2, " for want of memory"}}},
       {2},
       "was killed by SIGKILL for want of memory"},
      {"one that takes long to end after SIGKILL",
       {.reports = {{0, because_of({})}}, .wait_statuses = {{0, SIGABRT}, {2, SIGKILL}}, .killed = {{2, ""}}},
       {2},
       "was killed by SIGKILL"},
      {"one that somebody ends by SIGKILL because it hangs",
       {.reports = {{0, because_of({2})}},
        .wait_statuses = {{2, SIGKILL}},
        .states = {{2, {'R'}}},
        .killed = {{2, ""}}},
       {2},
       "had not entered collective 7; it was computing"},
      {"one that differs, beside one without memory",
       {.reports = {{0, differing({1})}}, .killed = {{2, " for want of memory"}}},
       {1},
       "differs"},
      {"the only one that did not wait, while others run",
       {.reports = {{0, because_of({})}, {1, because_of({})}},
        .wait_statuses = {{0, exit_with(1)}, {1, exit_with(1)}, {2, SIGTERM}},
        .num_running = 1},
       {0},
       ""},
      {"a rank in the kernel",
       {.reports = {{0, because_of({})}}, .states = {{5, {'D', seconds(50)}}}},
       {5},
       "had waited in the kernel for 50 s, as for a file system or a device that does not answer"},
      {"one that reads a file", {.reports = {{0, because_of({})}}, .states = {{5, {'D', milliseconds(900)}}}}, {0}, ""},
      {"the one of two that was there first",
       {.reports = {{0, because_of({})}}, .states = {{2, {'T', seconds(5)}}, {5, {'D', seconds(50)}}}},
       {5},
       "had waited in the kernel for 50 s, as for a file system or a device that does not answer"},
      {"one that ended too early",
       {.reports = {{0, because_of({})}}, .left = {{1, milliseconds(400)}}},
       {1},
       "had ended with status 0 too early, 0.4 s before"},
      {"one that has ended, but is not missed",
       {.reports = {{0, error_at(10)}}, .left = {{1, milliseconds(400)}}},
       {0},
       ""},
      {"one that wrote its memory before it ended",
       {.reports = {{0, because_of({1})}}, .wait_statuses = {{0, exit_with(124)}, {1, SIGSEGV | kWithCore}}},
       {1},
       "was killed by SIGSEGV"},
      {"one whose end the launcher saw late",
       {.reports = {{0, {"lost", "", {}, "", {{1}, "had ended", FailureCause::Kind::kEnded}}}},
        .wait_statuses = {{0, exit_with(75)}, {1, exit_with(3)}}},
       {1},
       "exited with code 3"},
      {"one that crashed while it was told to end",
       {.reports = {{0, because_of({})}}, .wait_statuses = {{0, exit_with(124)}, {1, SIGSEGV}}},
       {0},
       ""},
      {"a stopped rank of which others know only that they wait",
       {.reports = {{0, {"rank 0: collective 2 timed out after 3 s: all ranks have arrived", "", {}}},
                    {1, {"rank 1: collective 2 timed out after 3 s: rank 2 is at collective 3", "", {}}}},
        .states = {{5, {'T', seconds(50)}}}},
       {5},
       "had been stopped for 50 s (SIGSTOP, Ctrl-Z)"},
      {"what Python prints",
       {.last_lines = {{0, "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"},
                       {2, "ValueError: sizes differ"}}},
       {2},
       "failed first"},
      {"what Python prints, of a timeout",
       {.last_lines = {{0,
                        "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 5000ms for recv "
                        "operation to complete"},
                       {1, "epoch 3: the ValueError: of yesterday"}},
        .states = {{3, {'T', seconds(50)}}}},
       {3},
       "had been stopped for 50 s (SIGSTOP, Ctrl-Z)"},
      {"the only one that did not wait",
       {.reports = {{0, because_of({})}, {1, because_of({})}},
        .wait_statuses = {{0, exit_with(1)}, {1, exit_with(1)}, {2, SIGTERM}},
        .states = {{1, {'S'}}, {2, {'R'}}}},
       {2},
       "did not come where all others waited; it was computing"},
      {"one of two that did not wait",
       {.reports = {{0, because_of({})}, {1, because_of({})}},
        .wait_statuses = {{0, exit_with(1)}, {1, exit_with(1)}, {2, SIGTERM}, {3, SIGTERM}}},
       {0},
       ""},
      {"the other one of two",
       {.reports = {{0, because_of({})}}, .wait_statuses = {{0, exit_with(1)}, {1, SIGTERM}}},
       {0},
       ""},
      {"an error that all have",
       {.reports = {{0, error_at(10)}, {1, error_at(9)}, {2, error_at(10)}},
        .wait_statuses = {{0, exit_with(1)}, {1, exit_with(1)}, {2, SIGTERM}}},
       {0, 1, 2},
       "of 3 failed with the same error"},
      {"an error that some have, before others were told to end",
       {.reports = {{0, error_at(10)}, {2, error_at(10)}},
        .wait_statuses = {{0, exit_with(1)}, {1, SIGTERM}, {2, exit_with(1)}},
        .num_running = 1},
       {0, 2},
       "of 4 failed with the same error"},
      {"an error that all have, in which each names itself",
       {.reports = {{0, {"yoke::Error: rank 0: no such file", "", error_at(10).time}},
                    {12, {"yoke::Error: rank 12: no such file", "", error_at(10).time}}}},
       {0, 12},
       "of 2 failed with the same error"},
      {"errors that name different files",
       {.reports = {{0, {"no such file: shard-0", "", error_at(10).time}},
                    {1, {"no such file: shard-1", "", error_at(10).time}}}},
       {0},
       ""},
      {"an error that another rank has caught",
       {.reports = {{0, error_at(10)}, {1, error_at(10)}}, .wait_statuses = {{0, exit_with(1)}, {1, 0}}},
       {0},
       ""},
      {"what all ranks of Python print",
       {.last_lines = {{0, "ValueError: no"}, {1, "ValueError: no"}, {2, "epoch 3"}}},
       {0, 1},
       "of 2 failed with the same error"},
      {"the error of several, of which another one waited in vain",
       {.reports = {{0, because_of({})}, {1, error_at(11)}, {2, error_at(11)}},
        .wait_statuses = {{0, exit_with(75)}, {1, exit_with(1)}, {2, exit_with(1)}}},
       {1, 2},
       "of 3 failed with the same error"},
      {"one that lost another, as all do", {.reports = {{0, because_of({})}, {1, because_of({})}}}, {0}, ""},
      {"what it prints of an error of its own", {.last_lines = {{0, "KeyError: 'x'"}, {2, "ValueError: no"}}}, {0}, ""},
  };
  for (const auto& row : rows) {
    auto facts = row.facts;
    facts.first_failure_at = error_at(10).time;
    const auto culprit = find_culprit(facts);
    EXPECT_EQ(culprit.ranks, row.ranks) << row.name;
    EXPECT_EQ(culprit.what, row.what) << row.name;
  }
}

TEST(Culprit, IsTheRankThatIsShownIfItsReportSaysWhatOthersRepeat) {
  const auto shown = [](std::map<int64_t, ErrorReport> reports) {
    return rank_to_show({.first_exited = 0, .first_failure_at = error_at(10).time, .reports = std::move(reports)});
  };
  EXPECT_EQ(shown({{0, differing({2})}, {2, differing({2})}}), 2);
  EXPECT_EQ(shown({{0, differing({2})}, {2, error_at(10)}}), 2);
  EXPECT_EQ(shown({{0, differing({2})}, {2, because_of({})}}), 0) << "it lost a connection meanwhile";
  EXPECT_EQ(shown({{0, differing({2})}}), 0);
  EXPECT_EQ(shown({{0, differing({1, 2})}, {1, differing({1, 2})}}), 0);
  EXPECT_EQ(shown({{0, because_of({2})}, {2, because_of({1})}}), 0);
}

}  // namespace
}  // namespace yoke::launch
