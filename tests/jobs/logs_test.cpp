// Tests `yoke logs`.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>

#include "tests/jobs/job.h"
#include "tests/support/lines.h"
#include "yoke/base/host.h"
#include "yoke/base/line_connection.h"
#include "yoke/launch/job/job.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

TEST(Logs, WhatWasPrintedAsItWasPrinted) {
  auto job = RunningJob::shell(2, R"(printf 'a\377\033[31mb\n'; echo bad >&2; echo ready; exec sleep 1000)");
  ASSERT_TRUE(job.is_ready(2));
  ASSERT_TRUE(job.wait_until([&] { return lines_of(job.err()).size() == 2; }));
  const auto all = run(yoke({"logs", job.name()}));
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(lines_of(all.out),
              UnorderedElementsAre("[0] a\377\033[31mb", "[0] ready", "[1] a\377\033[31mb", "[1] ready"));
  EXPECT_THAT(lines_of(all.err), UnorderedElementsAre("[0] bad", "[1] bad"));
  const auto one = run(yoke({"logs", job.name(), "--rank", "1"}));
  EXPECT_EQ(one.out, "[1] a\377\033[31mb\n[1] ready\n");
  EXPECT_EQ(one.err, "[1] bad\n");
  const auto none = run(yoke({"logs", job.name(), "--rank", "2"}));
  EXPECT_EQ(none.exit_code, 66);
  EXPECT_THAT(none.err, HasSubstr("has no rank 2; its ranks are 0 to 1"));

  auto options = yoke({"logs", job.name()});
  options.on_terminal = true;
  EXPECT_THAT(run(options).out, HasSubstr("\033[32m[1]\033[0m a?\033[31mb\033[0m\r\n"))
      << "a terminal is not at their mercy";
  options.argv.insert(options.argv.end(), {"--color", "never"});
  EXPECT_THAT(run(options).out, HasSubstr("[1] a?b\r\n"));
  const auto always = run(yoke({"logs", job.name(), "--rank", "1", "--color", "always"}));
  EXPECT_EQ(always.out, "\033[32m[1]\033[0m a\377\033[31mb\n\033[32m[1]\033[0m ready\n");
}

TEST(Logs, FollowsToTheEndAndSaysWhy) {
  TemporaryFolder folder;
  auto job = RunningJob::shell(2, fmt::format("echo ready; while ! [ -e {} ]; do sleep 0.05; done; "
                                              "seq 1000; [ $RANK = 0 ] || exit 7",
                                              folder.path("go")));
  ASSERT_TRUE(job.is_ready(2));
  Command logs(yoke({"logs", job.name(), "-f", "--rank", "1"})), all(yoke({"logs", "-f", job.name()}));
  ASSERT_TRUE(logs.wait_for_output("[1] ready"));
  ASSERT_TRUE(all.wait_for_output("[1] ready"));
  folder.write("go", "");
  const auto ended = job.wait();
  const auto result = logs.wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(lines_of(result.out).size(), 1001);
  EXPECT_THAT(result.out, EndsWith("[1] 1000\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("[0]")));
  const auto of_all = all.wait();
  EXPECT_EQ(of_all.exit_code, 0);
  EXPECT_THAT(of_all.err, AllOf(HasSubstr("yoke run: rank 1 (pid "), HasSubstr("exited with code 7")))
      << "as `yoke run` said";
}

TEST(Logs, WhatCannotBeReadIsAFailure) {
  TemporaryFolder folder;
  RunningJob job({"-n", "2", "--redirects", "1", "--log-dir", folder.path("logs"), "--", "sh", "-c",
                  "echo ready >&2; exec sleep 60"});
  ASSERT_TRUE(wait_until([&] {
    job.wait_until([] { return false; }, milliseconds(1));
    return job.err().find("[1] ready") != std::string::npos && job.err().find("[0] ready") != std::string::npos;
  }));
  EXPECT_EQ(run(yoke({"logs", job.name()})).exit_code, 0);
  std::filesystem::remove_all(folder.path("logs"));
  const auto result = run(yoke({"logs", job.name()}));
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, HasSubstr("No such file or directory"));
}

TEST(Logs, TenMayFollow) {
  TemporaryFolder folder;
  auto job = RunningJob::shell(2, fmt::format("echo ready; until [ -e {0} ]; do sleep 0.05; done; for i in 1 2 3; do "
                                              "echo line $i; sleep 0.5; done",
                                              folder.path("go")));
  ASSERT_TRUE(job.is_ready(2));
  std::vector<std::unique_ptr<Command>> followers;
  for (int i = 0; i < 10; ++i) followers.push_back(std::make_unique<Command>(yoke({"logs", "-f", job.name()})));
  for (auto& one : followers) ASSERT_TRUE(one->wait_for_output("ready"));
  folder.write("go", "");
  job.wait();
  for (auto& one : followers) {
    const auto result = one->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(lines_of(result.out).size(), 8);
  }
}

TEST(Logs, ManyLinesReachWhoFollows) {
  TemporaryFolder folder;
  auto job = RunningJob::shell(
      2, fmt::format("echo ready; until [ -e {0} ]; do sleep 0.05; done; seq -f %099g 3000; until [ -e {0}.end ]; do "
                     "sleep 0.05; done; echo last",
                     folder.path("go")));
  ASSERT_TRUE(job.is_ready(2));
  Command logs(yoke({"logs", job.name(), "-f"}));
  ASSERT_TRUE(logs.wait_for_output("ready"));
  folder.write("go", "");
  EXPECT_TRUE(job.wait_until([&] {  // both outputs are read, because a launcher blocks if its output is not
    logs.wait_until([] { return false; }, milliseconds(1));
    return std::count(logs.out().begin(), logs.out().end(), '\n') >= 6002;
  }));
  folder.write("go.end", "");
  job.wait();
  const auto result = logs.wait();
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_EQ(lines_of(result.out).size(), 6004);
}

TEST(Logs, WhatGoesIntoFilesIsReadThereAfterARestartToo) {
  TemporaryFolder folder;
  RunningJob job({"-n", "2", "--redirects", "3", "--log-dir", folder.path("logs"), "--max-restarts", "1", "--", "sh",
                  "-c",
                  fmt::format("echo attempt $TORCHELASTIC_RESTART_COUNT; echo bad >&2; "
                              "while ! [ -e {}/$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.05; done; printf end; [ $RANK "
                              "= 0 ] && exit 7; exec sleep 1000",
                              folder.path())});
  ASSERT_TRUE(wait_until([&] { return run(yoke({"logs", job.name()})).out == "[0] attempt 0\n[1] attempt 0\n"; }));
  Command logs(yoke({"logs", job.name(), "-f", "--rank", "0"}));
  ASSERT_TRUE(logs.wait_for_output("[0] bad"));
  folder.write("0", "");
  ASSERT_TRUE(logs.wait_for_output("[0] attempt 1"));
  folder.write("1", "");
  EXPECT_EQ(job.wait().exit_code, 7);
  const auto result = logs.wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "[0] attempt 0\n[0] end\n[0] attempt 1\n[0] end\n");
  EXPECT_EQ(result.err, "[0] bad\n[0] bad\n");
}

TEST(Logs, TheLastLinesAlone) {
  TemporaryFolder folder;
  auto job = RunningJob::shell(2, fmt::format("seq -f line%g 50; echo ready; while ! [ -e {} ]; do sleep 0.05; done; "
                                              "echo more; exec sleep 1000",
                                              folder.path("go")));
  ASSERT_TRUE(job.is_ready(2));
  EXPECT_EQ(lines_of(run(yoke({"logs", job.name(), "-n", "3"})).out).size(), 3);
  EXPECT_EQ(run(yoke({"logs", job.name(), "--lines", "2", "--rank", "1"})).out, "[1] line50\n[1] ready\n");
  EXPECT_THAT(run(yoke({"logs", job.name(), "-n", "0"})).out, IsEmpty());
  EXPECT_EQ(run(yoke({"logs", job.name(), "-n", "1000"})).out, run(yoke({"logs", job.name()})).out);
  const auto wrong = run(yoke({"logs", job.name(), "-n", "-1"}));
  EXPECT_EQ(wrong.exit_code, 64);
  EXPECT_THAT(wrong.err, HasSubstr("yoke logs: -n -1: give 0 to 1000000000"));

  Command follows(yoke({"logs", job.name(), "-f", "-n", "1", "--rank", "0"}));
  ASSERT_TRUE(follows.wait_for_output("[0] ready"));
  folder.write("go", "");
  ASSERT_TRUE(follows.wait_for_output("[0] more"));
  EXPECT_EQ(follows.out(), "[0] ready\n[0] more\n");
}

TEST(Logs, SaysThatEarlierLinesAreGone) {
  TemporaryFolder folder;
  auto job = RunningJob::shell(2, fmt::format("if [ $RANK = 0 ]; then seq 40000; touch {0}; fi; until [ -e {0} ]; do "
                                              "sleep 0.05; done; echo ready >&2; exec sleep 1000",
                                              folder.path("printed")));
  ASSERT_TRUE(job.wait_until([&] { return lines_of(job.out()).size() == 40'000 && lines_of(job.err()).size() == 2; }));
  const auto all = run(yoke({"logs", job.name()}));
  EXPECT_EQ(lines_of(all.out).size() + 2, 32'768U) << "as docs/jobs.md says of short lines";
  EXPECT_THAT(all.err,
              HasSubstr("yoke logs: earlier lines are gone, 7234 of all ranks: the launcher keeps the last MiB\n"));
  EXPECT_THAT(run(yoke({"logs", job.name(), "-n", "35000"})).err,
              HasSubstr("yoke logs: earlier lines are gone, 7234 "));
  EXPECT_THAT(run(yoke({"logs", job.name(), "-n", "3", "--rank", "1"})).err, HasSubstr("earlier lines are gone"))
      << "they may have been its";
  EXPECT_THAT(run(yoke({"logs", job.name(), "-n", "1", "--rank", "1"})).err, Not(HasSubstr("gone")));
  EXPECT_THAT(run(yoke({"logs", job.name(), "-n", "100"})).err, Not(HasSubstr("gone")));
}

TEST(Logs, TheLastLinesOfFiles) {
  TemporaryFolder folder;
  // The lines have more than 64 KiB in total, so that several reads are needed.
  RunningJob job({"-n", "2", "--redirects", "3", "--log-dir", folder.path("logs"), "--", "sh", "-c",
                  "seq -f line%050g 3000; echo ready; printf open >&2; exec sleep 1000"});
  ASSERT_TRUE(wait_until([&] { return run(yoke({"logs", job.name(), "-n", "1"})).out == "[0] ready\n[1] ready\n"; }));
  const auto line = [](const char* number) { return "[1] line" + std::string(46, '0') + number + "\n"; };
  EXPECT_EQ(run(yoke({"logs", job.name(), "-n", "3", "--rank", "1"})).out, line("2999") + line("3000") + "[1] ready\n");
  EXPECT_EQ(lines_of(run(yoke({"logs", job.name(), "-n", "2000", "--rank", "1"})).out).size(), 2000);
  EXPECT_EQ(lines_of(run(yoke({"logs", job.name(), "-n", "5000", "--rank", "1"})).out).size(), 3001);
  EXPECT_THAT(run(yoke({"logs", job.name(), "-n", "0"})).out, IsEmpty());
}

TEST(Logs, APathOfAJobDoesNoHarmToATerminal) {
  TemporaryFolder folder;
  const auto logs = folder.path("\x1b]0;mine\a");
  RunningJob job({"-n", "2", "--redirects", "3", "--log-dir", logs, "--", "sh", "-c", "echo ready; exec sleep 1000"});
  ASSERT_TRUE(wait_until([&] { return run(yoke({"logs", job.name()})).out == "[0] ready\n[1] ready\n"; }));
  std::filesystem::rename(logs, folder.path("elsewhere"));
  const auto result = run(yoke({"logs", job.name()}));
  EXPECT_THAT(result.err, AllOf(HasSubstr("yoke logs: "), HasSubstr("No such file"), Not(HasSubstr("\x1b"))));
}

TEST(Logs, OfARankWithItsOwnTerminalItSaysWhere) {
  RunningJob job({"--", kHang});
  ASSERT_TRUE(job.is_ready(1));
  const auto result = run(yoke({"logs", job.name()}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("yoke logs: rank 0 writes its standard output straight to pipe:["));
}

TEST(Logs, OfARankThatIsNotShownItSaysSo) {
  RunningJob job({"-n", "2", "--local-ranks-filter", "0", "--", "sh", "-c", "echo ready; exec sleep 1000"});
  ASSERT_TRUE(job.is_ready(1));
  EXPECT_EQ(run(yoke({"logs", job.name(), "--rank", "1"})).err,
            "yoke logs: what rank 1 prints is not shown (--local-ranks-filter), and not kept\n");
  EXPECT_EQ(run(yoke({"logs", job.name(), "--rank", "0"})).err, "");
}

TEST(Logs, OnAFullDiskFail) {
  RunningJob job({"-n", "2", "--", "sh", "-c", "echo hi; exec sleep 1000"});
  ASSERT_TRUE(wait_until([&] { return run(yoke({"logs", job.name()})).out.size() == 14; }));
  auto options = yoke({"logs", job.name(), "-f"});
  options.argv.insert(options.argv.begin(), {"sh", "-c", "exec \"$@\" > /dev/full", "sh"});
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 75) << "and it does not go on";
  EXPECT_EQ(result.err, "yoke logs: writing the output: No space left on device\n");
}

/// A process of another user, with one supplementary group, that listens as a launcher does. It describes its job as
/// the first of `jobs`, and to a process that reads its lines then as the last one. Then the lines end, or never do.
class FakeLauncher {
 public:
  static constexpr gid_t kGroup = 4400;

  enum class Lines { kNone, kEndless };

  explicit FakeLauncher(const std::vector<Json>& jobs, Lines lines = Lines::kNone) : pipe_(make_pipe()), lines_(lines) {
    pid_ = fork();
    if (pid_ == 0) serve(jobs);
    char byte = 0;
    EXPECT_EQ(read(pipe_.read_end.value(), &byte, 1), 1);
  }
  FakeLauncher(const FakeLauncher&) = delete;
  FakeLauncher& operator=(const FakeLauncher&) = delete;
  ~FakeLauncher() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::string name() const { return std::to_string(pid_); }

 private:
  [[noreturn]] void serve(const std::vector<Json>& jobs) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setgroups(1, &kGroup) != 0 || setresgid(kSomebodyElse, kSomebodyElse, kSomebodyElse) != 0 ||
        setresuid(kSomebodyElse, kSomebodyElse, kSomebodyElse) != 0) {
      _exit(1);
    }
    const auto listener = listen_as_user(launch::kJobService);
    if (!listener || write(pipe_.write_end.value(), "y", 1) != 1) _exit(1);
    std::optional<LineConnection> follower;
    pid_t reader = 0;
    while (true) {
      pollfd news{listener.value(), POLLIN, 0};
      poll(&news, 1, -1);
      LineConnection client(accept_connection(listener.value()));
      const auto question = client.next(std::chrono::minutes(1));
      const auto asker = peer_of(client.fd()).value_or(Peer{}).pid;  // other tests may ask all launchers
      if (!question) continue;
      const bool is_again = reader != 0 && reader == asker;
      if (question->find("logs") != question->npos) {
        follower.emplace(std::move(client));
        reader = asker;
      } else {
        client.send((is_again ? jobs.back() : jobs.front()).dump());
      }
      if (follower && lines_ == Lines::kEndless) send_without_end(follower->fd());
      if (follower && (is_again || jobs.size() == 1)) follower->send(R"({"end":true})");
    }
  }

  [[noreturn]] static void send_without_end(int fd) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    const auto line = "{\"rank\":0,\"stream\":\"stdout\",\"missed\":0,\"bytes\":60000}\n" + std::string(60'000, 'x');
    while (send(fd, line.data(), line.size(), MSG_NOSIGNAL) > 0) {
    }
    for (;;) pause();
  }

  Pipe pipe_;
  Lines lines_;
  pid_t pid_ = -1;
};

class LogsOf : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
    chmod(folder_.path().c_str(), 0755);
  }
  Json job(const std::string& file, int64_t num_restarts) const {
    launch::Job job{.argv = {"./train"}, .host = host_name(), .num_ranks = 1, .num_restarts = num_restarts};
    job.ranks = {{.rank = 0, .host = job.host, .out = {.to = launch::StreamPlan::To::kNowhere, .file = file}}};
    return to_json(job);
  }
  /// Writes a file of root's that only `group` may read.
  std::string file_for(gid_t group, const std::string& name, const std::string& text) const {
    folder_.write(name, text);
    EXPECT_EQ(chown(folder_.path(name).c_str(), 0, group), 0);
    chmod(folder_.path(name).c_str(), 0640);
    return folder_.path(name);
  }
  TemporaryFolder folder_;
};

TEST_F(LogsOf, AnotherUserAreReadWithThatUsersRights) {
  const auto secret = file_for(0, "secret", "of root\n"), shared = file_for(FakeLauncher::kGroup, "log", "of all\n");
  const FakeLauncher of_secret({job(secret, 0)}), of_shared({job(shared, 0)});
  const auto refused = run(yoke({"logs", of_secret.name()}));
  EXPECT_EQ(refused.exit_code, 75);
  EXPECT_THAT(refused.out, IsEmpty());
  EXPECT_THAT(refused.err, AllOf(HasSubstr("secret"), HasSubstr("Permission denied")));
  const auto read = run(yoke({"logs", of_shared.name()}));
  EXPECT_EQ(read.out, "of all\n") << "with the groups of its process: " << read.err;
}

TEST_F(LogsOf, AnotherUserEnd) {
  const FakeLauncher launcher({job("", 0)}, FakeLauncher::Lines::kEndless);
  const auto result = run(yoke({"logs", launcher.name()}));
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_LT(result.out.size(), 20 << 20);
  EXPECT_THAT(result.err, HasSubstr("sends more lines than a launcher keeps"));
}

TEST_F(LogsOf, AnotherUserAreReadWithThatUsersRightsAfterARestartToo) {
  const auto secret = file_for(0, "secret", "of root\n"), shared = file_for(FakeLauncher::kGroup, "log", "of all\n");
  const FakeLauncher launcher({job(shared, 0), job(secret, 1)});
  const auto result = run(yoke({"logs", launcher.name(), "-f"}));
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_EQ(result.out, "of all\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("secret"), HasSubstr("Permission denied")));
}

}  // namespace
}  // namespace yoke::test
