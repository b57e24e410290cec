#include "yoke/base/command_output.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <string>

namespace yoke {
namespace {

using std::chrono::milliseconds;

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
  const auto start = std::chrono::steady_clock::now();
  const auto output =
      run_quietly({"sh", "-c", "echo begun; sleep 100 & sleep 100"}, Environment::of_process(), milliseconds(200));
  EXPECT_TRUE(output.timed_out);
  EXPECT_EQ(output.out, "begun\n");
  EXPECT_EQ(output.status, 128 + SIGTERM);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

TEST(CommandOutput, HasALimitForAProgramThatClosesItsStreamsToo) {
  const auto output = run_quietly({"sh", "-c", "trap '' TERM; echo begun; exec >&- 2>&-; sleep 100"},
                                  Environment::of_process(), milliseconds(200));
  EXPECT_TRUE(output.timed_out);
  EXPECT_EQ(output.out, "begun\n");
  EXPECT_EQ(output.status, 128 + SIGKILL);
}

TEST(CommandOutput, DoesNotWaitForBackgroundProcesses) {
  const auto start = std::chrono::steady_clock::now();
  const auto output = run_quietly({"sh", "-c", "sleep 100 & echo $!"}, Environment::of_process());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
  EXPECT_EQ(output.status, 0);
  EXPECT_EQ(kill(std::stoi(output.out), SIGKILL), 0);
}

}  // namespace
}  // namespace yoke
