#include "yoke/program/watched_program.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "tests/support/command.h"

namespace yoke::program {
namespace {

std::string read_to_end(Pipe& pipe) {
  pipe.write_end.reset();
  std::string text;
  char buffer[256];
  for (ssize_t count = 0; (count = read(pipe.read_end.value(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

int status_of(WatchedProgram& program) {
  while (!program.status()) {
    siginfo_t info = {};
    waitid(P_PID, static_cast<id_t>(program.pid()), &info, WEXITED | WNOWAIT);
    program.reap();
  }
  return *program.status();
}

TEST(WatchedProgram, RunsFromItsStartWithItsStreamsAndEnvironment) {
  auto out = make_pipe();
  WatchedProgram program(
      {"sh", "-c", "echo $WORD; exit 3"},
      {.environment = std::vector<std::string>{"PATH=/usr/bin:/bin", "WORD=here"}, .out = out.write_end.value()});
  program.reap();
  EXPECT_EQ(program.status(), std::nullopt) << "it waits for its start";
  EXPECT_EQ(program.start(), 0);
  EXPECT_EQ(read_to_end(out), "here\n");
  EXPECT_EQ(status_of(program), 3);
}

TEST(WatchedProgram, NeverRunsWithoutItsStart) {
  const test::TemporaryFolder folder;
  pid_t child = -1;
  {
    const WatchedProgram program({"touch", folder.path("file")});
    child = program.pid();
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), -1) << "it was reaped";
  EXPECT_FALSE(std::filesystem::exists(folder.path("file")));
}

TEST(WatchedProgram, TellsWhyItCannotBeExecuted) {
  const test::TemporaryFolder folder;
  folder.write("text", "not a program");
  WatchedProgram missing({folder.path("missing")}), text({folder.path("text")});
  EXPECT_EQ(missing.start(), ENOENT);
  EXPECT_EQ(status_of(missing), 127);
  EXPECT_EQ(text.start(), EACCES);
  EXPECT_EQ(status_of(text), 126);
}

TEST(WatchedProgram, ASignalIsAStatusAsInAShell) {
  auto in = make_pipe();
  WatchedProgram program({"cat"}, {.in = in.read_end.value()});
  EXPECT_EQ(program.start(), 0);
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(status_of(program), 128 + SIGTERM);
}

TEST(WatchedProgram, KeepsRunningWhenNobodyWatchesAnyMore) {
  auto in = make_pipe(), out = make_pipe();
  pid_t child = -1;
  {
    WatchedProgram program({"cat"}, {.in = in.read_end.value(), .out = out.write_end.value()});
    EXPECT_EQ(program.start(), 0);
    child = program.pid();
  }
  EXPECT_EQ(write(in.write_end.value(), "still", 5), 5);
  in.write_end.reset();
  EXPECT_EQ(read_to_end(out), "still");
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(WatchedProgram, WaitingForItPassesOnSignalsOfOtherProcesses) {
  WatchedProgram program({"sh", "-c", "trap 'exit 7' USR1; kill -USR1 $PPID; while :; do :; done"});
  SignalMessages messages;
  ASSERT_EQ(program.start(), 0);
  EXPECT_EQ(wait_for(program, messages, getppid()), 7);
}

TEST(WatchedProgram, WaitingForAProcessEndsWithItOrWithASignal) {
  const pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  const auto info = device::describe_process(pid);
  SignalMessages messages;
  kill(getpid(), SIGINT);
  wait_for_process(pid, info, messages);
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), 0) << "it still runs";
  kill(pid, SIGKILL);
  wait_for_process(pid, info, messages);
  waitpid(pid, nullptr, 0);
}

TEST(SignalMessages, SaysWhoSentASignalAndLeavesIgnoredOnesIgnored) {
  const auto usr2 = std::signal(SIGUSR2, SIG_IGN);
  {
    SignalMessages messages;
    EXPECT_FALSE(messages.next());
    raise(SIGUSR2);
    raise(SIGUSR1);
    const auto sent = messages.next();
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->signal, SIGUSR1);
    EXPECT_TRUE(sent->is_from_process);
    WatchedProgram program({"true"});
    EXPECT_EQ(program.start(), 0);
    pollfd news{messages.fd(), POLLIN, 0};
    while (poll(&news, 1, -1) < 0 && errno == EINTR) {
    }
    const auto ended = messages.next();
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->signal, SIGCHLD);
    EXPECT_FALSE(ended->is_from_process);
    EXPECT_EQ(status_of(program), 0);
  }
  EXPECT_EQ(std::signal(SIGUSR2, usr2), SIG_IGN);
  EXPECT_EQ(std::signal(SIGUSR1, SIG_DFL), SIG_DFL) << "the signals are as before";
}

}  // namespace
}  // namespace yoke::program
