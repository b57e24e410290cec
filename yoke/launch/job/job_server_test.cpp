#include "yoke/launch/job/job_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/launch/job/job_client.h"

namespace yoke::launch {
namespace {

using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr auto kNow = JobTime::min();

/// A server in an event loop without a supervisor. turn() runs the loop once. The clients are in this process too.
class JobServerTest : public testing::Test {
 protected:
  void turn() {
    const std::array<EventSource*, 1> sources = {&server_};
    loop_.turn(sources, std::chrono::milliseconds(0));
  }
  JobConnection connect() {
    auto connection = JobConnection::open(address(), kNow);
    if (!connection) throw std::runtime_error("nobody listens");
    turn();
    return std::move(*connection);
  }
  JobAddress address() {
    for (const auto& one : find_user_sockets(read_file("/proc/net/unix"), kJobService, geteuid())) {
      if (one.pid == getpid()) return one;
    }
    throw std::runtime_error("no address");
  }
  static void send(const JobConnection& connection, std::string_view bytes) {
    EXPECT_EQ(::send(connection.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  std::vector<std::string> read_lines(JobConnection& connection) {
    std::vector<std::string> result;
    for (int idle = 0; idle < 3 && !connection.is_over() && !connection.is_closed();) {
      turn();
      const auto line = connection.read_line(kNow);
      idle = line ? 0 : idle + 1;
      if (line) result.push_back(fmt::format("{}:{}", line->rank, line->text));
    }
    return result;
  }
  /// Whether the server has closed the connection.
  bool is_refused(JobConnection& connection) {
    turn();
    connection.read_job(kNow);
    return connection.is_closed();
  }

  Job job_{.pid = getpid(), .name = "yoke run", .run_id = "ada", .argv = {"./train", "\xff"}, .num_ranks = 2};
  RecentLines lines_;
  std::vector<StopHow> stops_;
  EventLoop loop_;
  JobServer server_{job_, lines_, [this](StopHow how) { stops_.push_back(how); }};
};

TEST_F(JobServerTest, TellsTheJobAsItIsNow) {
  job_.started_at = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000));
  job_.argv = {"./train", "--name", "ä\"\n"};
  job_.begin_attempt({{.rank = 0, .out = {.file = "/logs/0"}, .prefix = "[0] "}, {.rank = 1, .err = {.is_own = true}}},
                     2);
  auto connection = connect();
  for (const int status : {-1, W_EXITCODE(3, 0), W_EXITCODE(0, SIGSEGV)}) {
    job_.on_started(1, 4121);
    if (status >= 0) job_.on_exited(1, status);
    connection.ask_job();
    turn();
    EXPECT_EQ(connection.read_job(kNow), job_) << "as it was sent";
  }
}

TEST_F(JobServerTest, IsFoundAmongTheJobsOfThisMachine) {
  auto never = find_jobs(std::chrono::milliseconds(20));  // the loop does not run, so the server does not answer
  std::erase_if(never, [](const FoundJob& found) { return found.address.pid != getpid(); });
  ASSERT_THAT(never, SizeIs(1));
  EXPECT_FALSE(never[0].job);
  server_.close();
  EXPECT_THROW(address(), std::runtime_error);
}

TEST_F(JobServerTest, StopsAsItIsAsked) {
  auto connection = connect();
  connection.ask_stop(false);
  turn();
  EXPECT_THAT(stops_, ElementsAre(StopHow::kWithGrace));
  EXPECT_TRUE(connection.read_job(kNow));
  connection.ask_stop(true);
  turn();
  EXPECT_THAT(stops_, ElementsAre(StopHow::kWithGrace, StopHow::kNow));
}

TEST_F(JobServerTest, GivesTheLinesThatItHas) {
  const std::string bytes("\0\xff\n no line of the protocol: {\"end\":true}", 20);
  lines_.add(0, LineStream::kOut, "first");
  lines_.add(1, LineStream::kErr, bytes);
  auto connection = connect();
  connection.ask_logs(false);
  EXPECT_THAT(read_lines(connection), ElementsAre("0:first", "1:" + bytes));
  EXPECT_TRUE(connection.is_over());
}

TEST_F(JobServerTest, GivesNewLinesToThoseWhoFollow) {
  auto connection = connect();
  connection.ask_logs(true);
  EXPECT_THAT(read_lines(connection), IsEmpty());
  lines_.add(0, LineStream::kOut, "one");
  EXPECT_THAT(read_lines(connection), ElementsAre("0:one"));
  EXPECT_FALSE(connection.is_over());
  lines_.add(0, LineStream::kOut, "last");
  server_.finish(std::chrono::seconds(60));
  EXPECT_EQ(connection.read_line(kNow)->text, "last");
  EXPECT_FALSE(connection.read_line(kNow));
  EXPECT_TRUE(connection.is_over());
}

TEST_F(JobServerTest, WhoReadsGetsAllLastLinesHoweverManyTheyAre) {
  auto connection = connect();
  connection.ask_logs(true);
  EXPECT_THAT(read_lines(connection), IsEmpty());
  constexpr int kLines = 6000;
  for (int i = 0; i < kLines; ++i) lines_.add(0, LineStream::kOut, std::string(100, 'x'));
  int num_read = 0;
  std::thread reader([&] {
    while (connection.read_line(steady_clock::now() + std::chrono::minutes(1))) ++num_read;
  });
  server_.finish(std::chrono::minutes(1));
  server_.close();
  reader.join();
  EXPECT_EQ(num_read, kLines);
}

TEST_F(JobServerTest, WhoNeverReadsMissesLinesAndDelaysNobody) {
  auto lazy = connect();
  lazy.ask_logs(true);
  turn();
  for (int i = 0; i < 200'000; ++i) {
    lines_.add(0, LineStream::kOut, fmt::format("line {}", i));
    if (i % 1000 == 0) turn();
  }
  auto keen = connect();
  keen.ask_job();
  turn();
  EXPECT_TRUE(keen.read_job(kNow));
  server_.finish(std::chrono::milliseconds(50));  // would wait for ever without a limit
}

TEST_F(JobServerTest, WhoHasAnAnswerToTakeIsWaitedForAndNotAsked) {
  const auto events = [&] {
    WaitSet waits;
    server_.add_to(waits);
    return waits.polls().at(1).events;
  };
  auto slow = connect();
  EXPECT_EQ(events(), POLLIN);
  slow.ask_logs(true);
  turn();
  EXPECT_EQ(events(), POLLIN);
  for (int i = 0; i < 20; ++i) {
    lines_.add(0, LineStream::kOut, std::string(50'000, 'x'));
    turn();
  }
  EXPECT_EQ(events(), POLLOUT);
  EXPECT_THAT(read_lines(slow), SizeIs(20));
  EXPECT_EQ(events(), POLLIN);
}

TEST_F(JobServerTest, ASlowReaderIsToldWhatItMissed) {
  auto slow = connect();
  slow.ask_logs(true);
  turn();
  constexpr int kCount = 200'000;
  for (int i = 0; i < kCount; ++i) {
    lines_.add(0, LineStream::kOut, fmt::format("line {}", i));
    if (i % 1000 == 0) turn();
  }
  uint64_t next = 0, num_missed = 0;
  while (next < kCount) {
    turn();
    while (const auto line = slow.read_line(kNow)) {
      next += line->num_missed;
      num_missed += line->num_missed;
      ASSERT_EQ(line->text, fmt::format("line {}", next)) << "nothing twice, nothing lost unsaid";
      ++next;
    }
  }
  EXPECT_GT(num_missed, 0);
}

TEST_F(JobServerTest, GarbageIsHungUpOn) {
  const std::string long_line(5000, 'x');
  for (const std::string& question :
       {std::string("\n"), std::string("null\n"), std::string("[1]\n"), std::string("{}\n"),
        std::string("{\"command\":7}\n"), std::string("{\"command\":\"stop\"}\n"),
        std::string("{\"command\":\"logs\",\"follow\":1}\n"), std::string("\xff\0\n", 3), std::string(4000, '[') + "\n",
        long_line}) {
    auto connection = connect();
    send(connection, question);
    turn();
    EXPECT_TRUE(is_refused(connection)) << question.substr(0, 40);
  }
  EXPECT_THAT(stops_, IsEmpty());
  auto stranger = connect();
  send(stranger, "{\"command\":\"dance\"}\n");
  turn();
  EXPECT_THROW(stranger.read_job(kNow), Error);
}

TEST_F(JobServerTest, AQuestionMayComeInParts) {
  auto connection = connect();
  for (const char* part : {"{\"comm", "and\":\"job", "\"}\n"}) {
    send(connection, part);
    turn();
  }
  EXPECT_TRUE(connection.read_job(kNow));
}

TEST_F(JobServerTest, TheLongestSilentMakesRoom) {
  std::vector<JobConnection> silent;
  for (int i = 0; i < 64; ++i) {
    silent.push_back(connect());
    turn();
    // The first one is never the longest silent, also if another process of this user asks (`yoke jobs`).
    silent[0].ask_job();
    turn();
    EXPECT_TRUE(silent[0].read_job(kNow));
  }
  auto another = connect();
  another.ask_job();
  turn();
  EXPECT_TRUE(another.read_job(kNow));
  EXPECT_FALSE(is_refused(silent[0]));
  EXPECT_TRUE(is_refused(silent[1]));
}

TEST_F(JobServerTest, AnswersItsOwnUserAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  const auto to = address();
  const pid_t child = fork();
  if (child == 0) {  // root gets answers from all servers; a different user is refused
    if (setresuid(4321, 4321, 4321) != 0) _exit(9);
    auto connection = JobConnection::open(to, kNow);
    if (!connection) _exit(1);
    connection->ask_stop(true);
    connection->read_job(steady_clock::now() + std::chrono::seconds(10));
    _exit(connection->is_closed() ? 0 : 2);
  }
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) turn();
  EXPECT_EQ(status, 0);
  EXPECT_THAT(stops_, IsEmpty());
}

}  // namespace
}  // namespace yoke::launch
