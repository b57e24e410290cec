#include "yoke/launch/process/step_daemon.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;

TEST(StepDaemon, TheNearestSlurmstepdIsTheStepsOwn) {
  EXPECT_EQ(step_daemon_of({}), 0);
  EXPECT_EQ(step_daemon_of({{40, "bash"}, {30, "sshd"}}), 0);
  EXPECT_EQ(step_daemon_of({{40, "slurmstepd"}, {30, "slurmd"}}), 40);
  EXPECT_EQ(step_daemon_of({{50, "sh"}, {40, "slurmstepd"}, {20, "slurmstepd"}}), 40);
}

TEST(StepDaemon, RanksHaveWhatSlurmGaveTheGuardian) {
  const struct {
    const char* what;
    pid_t daemon;
    std::optional<pid_t> guardians;
    milliseconds since_start;
    bool expected;
  } rows[] = {
      {"linuxproc: all processes of the step got it", 40, 40, milliseconds(1000), true},
      {"cgroup, pgid: only the launcher got it", 40, std::nullopt, milliseconds(5000), false},
      {"another process signalled the guardian", 40, 7, milliseconds(5000), false},
      {"the launcher's signal is not Slurm's", 0, 40, milliseconds(5000), false},
      {"a sender in another PID namespace", 0, 0, milliseconds(5000), false},
      {"slurmstepd may have missed a new rank", 40, 40, milliseconds(999), false},
  };
  for (const auto& row : rows)
    EXPECT_EQ(have_ranks(row.daemon, row.guardians, row.since_start), row.expected) << row.what;
}

TEST(StepDaemon, AncestorsAndPendingSignalsAreRead) {
  const auto found = ancestors();
  if (getppid() > 1) {
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.front().pid, getppid());
    EXPECT_FALSE(found.front().name.empty());
  }
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  EXPECT_EQ(take_pending(SIGUSR2), std::nullopt);
  kill(getpid(), SIGUSR2);
  EXPECT_EQ(take_pending(SIGUSR2), getpid());
  EXPECT_EQ(take_pending(SIGUSR2), std::nullopt);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace yoke::launch
