#include "yoke/launch/process/kernel_sleep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

struct KernelSleepTest : testing::Test {
  /// Looks as often as next_time() asks, until `end` is over. Returns those that were reported.
  std::vector<pid_t> look_until(milliseconds end) {
    std::vector<pid_t> result;
    while (now_ < start_ + end) {
      const auto next = watch_.next_time();
      if (!next) return result;
      now_ = std::max(*next, now_);
      for (const auto pid : watch_.look(now_)) result.push_back(pid);
      now_ += milliseconds(1);
    }
    return result;
  }

  const KernelSleep::Time start_ = KernelSleep::Time(seconds(100));
  KernelSleep::Time now_ = start_;
  std::set<pid_t> asleep_;
  KernelSleep watch_{seconds(30), [this](pid_t pid) { return asleep_.contains(pid); }};
};

TEST_F(KernelSleepTest, IsReportedOnceAfterTheLimit) {
  watch_.add(7);
  watch_.add(8);
  asleep_ = {8};
  EXPECT_THAT(look_until(milliseconds(29'900)), IsEmpty());
  EXPECT_THAT(look_until(seconds(31)), ElementsAre(8));
  EXPECT_THAT(look_until(seconds(100)), IsEmpty());
}

TEST_F(KernelSleepTest, BeginsAnewAfterTheProcessWasAwake) {
  watch_.add(8);
  asleep_ = {8};
  look_until(seconds(29));
  asleep_ = {};
  look_until(milliseconds(29'500));
  asleep_ = {8};
  EXPECT_THAT(look_until(seconds(59)), IsEmpty());
  EXPECT_THAT(look_until(seconds(60)), ElementsAre(8));
}

TEST_F(KernelSleepTest, NothingIsWatchedThatHasEndedOrWithoutALimit) {
  asleep_ = {8};
  watch_.add(8);
  look_until(seconds(29));
  watch_.remove(8);
  EXPECT_EQ(watch_.next_time(), std::nullopt);
  KernelSleep off(milliseconds(0), [](pid_t) { return true; });
  off.add(8);
  EXPECT_EQ(off.next_time(), std::nullopt);
}

TEST(IsInKernelSleep, IsTheParentOfAChildOfVfork) {
  int up[2], down[2];
  ASSERT_EQ(pipe(up), 0);
  ASSERT_EQ(pipe(down), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    // The kernel suspends the parent of a vfork in uninterruptible sleep until the child has ended.
    char byte = 0;
    if (vfork() == 0) _exit(write(up[1], "x", 1) == 1 && read(down[0], &byte, 1) == 1 ? 0 : 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(up[0], &byte, 1), 1);  // the child of vfork runs, and waits for its own byte
  const auto wait_for = [pid](bool wanted) {
    while (is_in_kernel_sleep(pid) != wanted) usleep(1000);
  };
  wait_for(true);
  ASSERT_EQ(write(down[1], "x", 1), 1);
  wait_for(false);  // it is in pause(), or on its way there
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_FALSE(is_in_kernel_sleep(pid));
  for (const int fd : {up[0], up[1], down[0], down[1]}) close(fd);
}

}  // namespace
}  // namespace yoke::launch
