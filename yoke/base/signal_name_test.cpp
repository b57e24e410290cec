#include "yoke/base/signal_name.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "yoke/base/process.h"

namespace yoke {
namespace {

TEST(SignalName, IsThatOfTheManual) {
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(64), "signal 64");
}

TEST(DescribeWaitStatus, SaysHowAProgramEnded) {
  EXPECT_EQ(describe_wait_status(W_EXITCODE(0, 0)), "exited with code 0");
  EXPECT_EQ(describe_wait_status(W_EXITCODE(3, 0)), "exited with code 3");
  EXPECT_EQ(describe_wait_status(W_EXITCODE(0, SIGSEGV) | WCOREFLAG), "was killed by SIGSEGV");
}

TEST(DescribeEnd, TakesTheStatusOfAShell) {
  EXPECT_EQ(describe_end(shell_status(W_EXITCODE(3, 0))), "the program ended with status 3");
  EXPECT_EQ(describe_end(shell_status(W_EXITCODE(0, SIGKILL))), "SIGKILL ended the program");
}

}  // namespace
}  // namespace yoke
