#include "yoke/program/attempt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>

namespace yoke::program {
namespace {

/// Reaps the next child and returns its exit status; nullopt if this process has no child.
std::optional<int> reap_child() {
  int status = 0;
  if (waitpid(-1, &status, 0) < 0) return std::nullopt;
  return WEXITSTATUS(status);
}

TEST(Attempt, GivesTheStatusOfTheWorkAndReapsTheChild) {
  EXPECT_EQ(attempt_in_child([](const auto& /*finish*/) { return 3; }), 3);
  EXPECT_EQ(reap_child(), std::nullopt);
}

TEST(Attempt, DoesNotWaitForAChildThatFinishes) {
  const int status = attempt_in_child([](const auto& finish) {
    finish(7);
    return 3;
  });
  EXPECT_EQ(status, 7);
  EXPECT_EQ(reap_child(), 7) << "it was not waited for";
}

TEST(Attempt, ASignalThatEndsTheChildIsItsStatusAsInAShell) {
  EXPECT_EQ(attempt_in_child([](const auto& /*finish*/) { return raise(SIGKILL); }), 128 + SIGKILL);
}

volatile sig_atomic_t num_usr1 = 0, num_usr2 = 0;

/// Without the signal that is passed on, the child waits for ever.
TEST(Attempt, PassesSignalsOnExceptThoseThatWereIgnored) {
  const auto before = std::signal(SIGUSR2, SIG_IGN);
  const pid_t parent = getpid();
  const int status = attempt_in_child([&](const auto& /*finish*/) {
    if (std::signal(SIGUSR1, [](int) { num_usr1 = 1; }) != SIG_DFL) return 1;  // the parent's handler
    std::signal(SIGUSR2, [](int) { num_usr2 = 1; });
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
    kill(parent, SIGUSR2);
    kill(parent, SIGUSR1);
    while (num_usr1 == 0) sigsuspend(&none);
    return num_usr2 == 0 ? 5 : 2;
  });
  EXPECT_EQ(status, 5);
  EXPECT_EQ(std::signal(SIGUSR2, before), SIG_IGN);
  EXPECT_EQ(std::signal(SIGUSR1, SIG_DFL), SIG_DFL) << "the signals are as before";
}

/// A signal that comes when the child has ended, but is not reaped, reaches neither.
TEST(Attempt, ASignalAfterTheEndOfTheChildActsOnACallerThatGoesOn) {
  const pid_t parent = getpid();
  const auto work = [&](const auto& /*finish*/) {
    std::signal(SIGUSR1, SIG_IGN);  // as little as an exited process does it notice the signal
    kill(parent, SIGUSR1);
    return 4;
  };
  static volatile sig_atomic_t num = 0;
  std::signal(SIGUSR1, [](int) { num = num + 1; });
  EXPECT_EQ(attempt_in_child(work), 4);
  EXPECT_EQ(num, 0);
  EXPECT_EQ(attempt_in_child(work, ForwardedSignal::kRaised), 4);
  EXPECT_EQ(num, 1);
  const auto ends = [&](const auto& /*finish*/) {
    std::signal(SIGUSR1, SIG_DFL);
    kill(parent, SIGUSR1);
    for (;;) pause();
    return 0;
  };
  EXPECT_EQ(attempt_in_child(ends, ForwardedSignal::kRaised), 128 + SIGUSR1);
  EXPECT_EQ(num, 1) << "the status tells";
  std::signal(SIGUSR1, SIG_DFL);
}

}  // namespace
}  // namespace yoke::program
