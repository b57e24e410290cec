#include "yoke/base/signal_name.h"

#include <gtest/gtest.h>
#include <string.h>
#include <sys/wait.h>

#include <csignal>
#include <string>

#include "yoke/base/error.h"
#include "yoke/base/process.h"

namespace yoke {
namespace {

TEST(SignalName, IsThatOfTheManual) {
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
#if __GLIBC_PREREQ(2, 32)
  for (int signal = 1; signal < 32; ++signal)
    EXPECT_EQ(signal_name(signal), std::string("SIG") + sigabbrev_np(signal)) << signal;
#endif
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

TEST(Signals, ByNameAndNumber) {
  EXPECT_EQ(parse_signal("TERM"), SIGTERM);
  EXPECT_EQ(parse_signal("SIGUSR1"), SIGUSR1);
  EXPECT_EQ(parse_signal("9"), SIGKILL);
  for (const char* text : {"", "0", "-1", "SIG", "term", "65", "9x", "SIG9", "\x1b[2J"}) {
    EXPECT_THROW(parse_signal(text), Error) << text;
  }
  EXPECT_TRUE(is_ending(SIGINT));
  EXPECT_FALSE(is_ending(SIGSTOP));
  EXPECT_FALSE(is_ending(SIGUSR1));
}

}  // namespace
}  // namespace yoke
