#include "yoke/base/command_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>

#include "tests/support/command.h"
#include "yoke/base/file.h"

namespace yoke {
namespace {

/// Ten times what a shell needs on a busy machine to print a line.
constexpr std::chrono::milliseconds kLimitOfCommand(2000);

TEST(CommandOutput, HasBothStreamsAndTheStatus) {
  const auto output = run_quietly({"sh", "-c", "echo out; echo err >&2; exit 3"}, Environment::of_process());
  EXPECT_EQ(output.out, "out\n");
  EXPECT_EQ(output.err, "err\n");
  EXPECT_EQ(output.status, 3);
  EXPECT_FALSE(output.timed_out);
}

TEST(CommandOutput, SaysThatAProgramIsMissing) {
  EXPECT_EQ(run_quietly({"/no/such/program"}, Environment::of_process()).status, 127);
}

TEST(CommandOutput, EndsAProgramAndItsChildrenAtTheLimit) {
  const auto output =
      run_quietly({"sh", "-c", "sleep 1000 & echo $!; sleep 1000"}, Environment::of_process(), kLimitOfCommand);
  EXPECT_TRUE(output.timed_out);
  EXPECT_EQ(output.status, 128 + SIGTERM);
  const auto child = std::stoi(output.out);
  EXPECT_TRUE(test::wait_until([&] { return test::state_of(child) == 'X' || test::state_of(child) == 'Z'; }));
}

TEST(CommandOutput, HasALimitForAProgramThatClosesItsStreamsToo) {
  const auto output = run_quietly({"sh", "-c", "trap '' TERM; echo begun; exec >&- 2>&-; sleep 100"},
                                  Environment::of_process(), kLimitOfCommand);
  EXPECT_TRUE(output.timed_out);
  EXPECT_EQ(output.out, "begun\n");
  EXPECT_EQ(output.status, 128 + SIGKILL);
}

TEST(CommandOutput, DoesNotWaitForBackgroundProcesses) {
  const auto output = run_quietly({"sh", "-c", "sleep 1000 & echo $!"}, Environment::of_process());
  EXPECT_EQ(output.status, 0);
  const auto child = std::stoi(output.out);
  EXPECT_NE(test::state_of(child), 'X');
  EXPECT_EQ(kill(child, SIGKILL), 0);
}

/// The kernel sends it to the leader of the terminal's session alone, such as a command of `ssh -t`.
TEST(CommandOutput, AHangupReachesTheProgramOfASessionLeader) {
  auto said = make_pipe();
  UniqueFd terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_EQ(grantpt(terminal.value()), 0);
  ASSERT_EQ(unlockpt(terminal.value()), 0);
  const pid_t leader = fork();
  if (leader == 0) {
    setsid();
    const UniqueFd own(open(ptsname(terminal.value()), O_RDWR | O_CLOEXEC));  // becomes its controlling terminal
    terminal.reset();
    std::signal(SIGHUP, SIG_DFL);
    dup2(said.write_end.value(), STDERR_FILENO);  // where the program's output goes
    run_visibly({"sh", "-c", "echo $$; exec sleep 1000"}, Environment::of_process());
    _exit(0);
  }
  char text[32] = {};
  ASSERT_GT(read(said.read_end.value(), text, sizeof text - 1), 0);
  const auto program = static_cast<pid_t>(std::stoi(text));
  terminal.reset();
  int status = 0;
  EXPECT_TRUE(test::wait_until([&] { return waitpid(leader, &status, WNOHANG) == leader; }));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP) << "it is passed on, and acts here after that";
  EXPECT_EQ(test::state_of(program), 'X');
  kill(leader, SIGKILL);
  kill(program, SIGKILL);
}

}  // namespace
}  // namespace yoke
