#include "yoke/train/watch/detail/lock_step.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/command.h"
#include "yoke/base/error.h"

namespace yoke::train {
namespace {

TEST(LockStep, NoCopyIsAStepAhead) {
  const test::TemporaryFolder folder;
  for (const char* name : {"0", "1", "2"}) ASSERT_EQ(mkfifo(folder.path(name).c_str(), 0600), 0);
  constexpr int kNumSteps = 200;
  std::atomic<int> begun[3] = {}, worst = 0;
  std::vector<std::thread> copies;
  for (int copy = 0; copy < 3; ++copy) {
    copies.emplace_back([&, copy] {
      detail::LockStep lock_step(folder.path(std::to_string(copy)));
      for (int step = 0; step < kNumSteps; ++step) {
        begun[copy] = step + 1;
        if (step % 3 == copy) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // clock: the work of a step
        for (const auto& other : begun) {
          // A copy may be in the next step already, but not in the one after it.
          const int ahead = other - (step + 1);
          if (ahead > worst) worst = ahead;
        }
        lock_step.on_step(step);
      }
    });
  }
  for (auto& copy : copies) copy.join();
  EXPECT_LE(worst, 1);
  EXPECT_EQ(begun[0] + begun[1] + begun[2], 3 * kNumSteps);
}

TEST(LockStep, AForkedChildDoesNotWait) {
  const test::TemporaryFolder folder;
  for (const char* name : {"0", "1"}) ASSERT_EQ(mkfifo(folder.path(name).c_str(), 0600), 0);
  detail::LockStep lock_step(folder.path("0"));
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    lock_step.on_step(0);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(LockStep, SaysWhichFifoCannotBeOpened) { EXPECT_THROW(detail::LockStep("/nowhere/0"), Error); }

}  // namespace
}  // namespace yoke::train
