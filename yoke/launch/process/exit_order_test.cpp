#include "yoke/launch/process/exit_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace yoke::launch {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;

TEST(ExitOrder, IsThatOfTheEndsAndNotOfTheStarts) {
  ExitOrder order;
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    children.push_back(fork());
    if (children.back() == 0) {
      pause();
      _exit(0);
    }
    order.add(children.back());
  }
  EXPECT_THAT(order.take(), IsEmpty());
  const std::vector<pid_t> ended = {children[3], children[5], children[0], children[4]};
  siginfo_t info;
  for (const auto pid : ended) {
    kill(pid, SIGKILL);
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);  // has ended, and is not reaped
  }
  EXPECT_THAT(order.take(), ElementsAreArray(ended));
  EXPECT_THAT(order.take(), IsEmpty()) << "each is returned once";
  for (const auto pid : children) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

}  // namespace
}  // namespace yoke::launch
