#include "yoke/base/command_output.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <string>

#include "tests/support/command.h"

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

}  // namespace
}  // namespace yoke
