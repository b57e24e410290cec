#include "yoke/launch/job/log_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/support/command.h"
#include "yoke/launch/job/job_server.h"

namespace yoke::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A job whose launcher keeps the lines of rank 0 and has sent those of rank 1 into a file.
class LogReaderTest : public testing::Test {
 protected:
  LogReaderTest() {
    folder_.write("1.log", "one\ntwo\nunfinished");
    job_.ranks = {{.rank = 0, .prefix = "[0] "},
                  {.rank = 1, .out = {.to = StreamPlan::To::kNowhere, .file = folder_.path("1.log")}}};
    lines_.add(0, LineStream::kOut, "first");
    lines_.add(0, LineStream::kErr, "second");
    lines_.add(RecentLines::kLauncher, LineStream::kErr, "a rank has ended");
  }

  /// What read_logs() hands over, while the launcher runs in a thread.
  bool read(JobLogOptions options) {
    options.on_line = [this](const JobRank* rank, LineStream stream, std::string_view text) {
      read_.push_back(fmt::format("{}{}: {}", rank == nullptr ? "" : rank->prefix,
                                  stream == LineStream::kErr ? "err" : "out", text));
    };
    options.tell = [this](Told /*what*/, const std::string& text) { news_.push_back(text); };
    options.on_turn = [] { return true; };
    JobServer server(job_, lines_, [](StopHow) {});
    std::atomic<bool> is_over = false;
    std::thread launcher([&] {
      EventLoop loop;
      const std::array<EventSource*, 1> sources = {&server};
      while (!is_over) loop.turn(sources, std::chrono::milliseconds(10));
    });
    auto connection = JobConnection::open(address(), std::chrono::steady_clock::now() + std::chrono::hours(1));
    const bool is_whole = connection && read_logs(job_, std::move(*connection), options);
    is_over = true;
    launcher.join();
    return is_whole;
  }
  static JobAddress address() {
    for (const auto& one : list_user_sockets(kJobService, geteuid())) {
      if (one.pid == getpid()) return one;
    }
    return {};
  }

  test::TemporaryFolder folder_;
  Job job_{.pid = getpid(), .name = "yoke run", .run_id = "none", .argv = {"./train"}, .num_ranks = 2};
  RecentLines lines_;
  std::vector<std::string> read_, news_;
};

TEST_F(LogReaderTest, ReadsFromTheLauncherAndFromFiles) {
  EXPECT_TRUE(read({}));
  EXPECT_THAT(read_, testing::UnorderedElementsAre("[0] out: first", "[0] err: second", "err: a rank has ended",
                                                   "out: one", "out: two", "out: unfinished"));
  EXPECT_THAT(news_, IsEmpty());
}

TEST_F(LogReaderTest, ReadsTheLastLinesOfOneRank) {
  EXPECT_TRUE(read({.rank = 1, .num_lines = 2}));
  EXPECT_THAT(read_, ElementsAre("out: two", "out: unfinished"));
  read_.clear();
  EXPECT_TRUE(read({.rank = 0, .num_lines = 1}));
  EXPECT_THAT(read_, ElementsAre("[0] err: second"));
}

TEST_F(LogReaderTest, AFileThatIsGoneIsTold) {
  unlink(folder_.path("1.log").c_str());
  EXPECT_FALSE(read({.rank = 1}));
  EXPECT_THAT(news_, ElementsAre(HasSubstr("1.log")));
}

TEST(MissingLogs, AreThoseThatNobodyKeeps) {
  const StreamPlan nowhere{.to = StreamPlan::To::kNowhere};
  Job job{.pid = 7, .host = "here", .num_ranks = 3};
  job.ranks = {{.rank = 0, .host = "here", .out = {.is_own = true}},
               {.rank = 1, .host = "here", .out = nowhere, .err = nowhere},
               {.rank = 2, .host = "n2", .out = nowhere, .err = nowhere}};
  EXPECT_THAT(missing_logs(job, {}), ElementsAre(HasSubstr("rank 0 writes its standard output straight to ")));
  EXPECT_THAT(missing_logs(job, {.rank = 1}),
              ElementsAre("what rank 1 prints is not shown (--local-ranks-filter), and not kept"));
  EXPECT_THAT(missing_logs(job, {.rank = 2}), ElementsAre(HasSubstr("rank 2 runs on n2")));
}

}  // namespace
}  // namespace yoke::launch
