#include "yoke/dist/detail/stop_signal.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "yoke/base/error.h"

namespace yoke::dist {
namespace {

volatile sig_atomic_t num_own_calls = 0;

/// Runs a test in its own process, because handlers stay installed. Returns the process's exit code, or 128 + the
/// signal that ended it.
int in_a_child(const std::function<bool()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(StopSignal, ItSetsTheFlagAndDoesNotKill) {
  EXPECT_EQ(in_a_child([] {
              heed_stop_signals({SIGTERM, SIGUSR1});
              if (is_told_to_stop()) return false;
              raise(SIGTERM);
              return is_told_to_stop();
            }),
            0);
}

TEST(StopSignal, OthersKillAsEver) {
  EXPECT_EQ(in_a_child([] {
              heed_stop_signals({SIGTERM});
              raise(SIGUSR1);
              return true;
            }),
            128 + SIGUSR1);
}

TEST(StopSignal, AHandlerFromBeforeIsCalledToo) {
  EXPECT_EQ(in_a_child([] {
              signal(SIGTERM, [](int) { num_own_calls = num_own_calls + 1; });
              struct sigaction action {};
              action.sa_flags = SA_SIGINFO | SA_RESETHAND;
              action.sa_sigaction = [](int, siginfo_t* info, void*) {
                if (info->si_pid == getpid()) num_own_calls = num_own_calls + 10;
              };
              sigaction(SIGUSR1, &action, nullptr);
              heed_stop_signals({SIGTERM, SIGUSR1});
              raise(SIGTERM);
              raise(SIGUSR1);
              raise(SIGUSR1);
              return is_told_to_stop() && num_own_calls == 21;
            }),
            0);
}

TEST(StopSignal, AHandlerFromLaterKeepsItsPlace) {
  EXPECT_EQ(in_a_child([] {
              heed_stop_signals({SIGTERM});
              signal(SIGTERM, [](int) { num_own_calls = num_own_calls + 1; });
              heed_stop_signals({SIGTERM});  // like a second World
              raise(SIGTERM);
              return !is_told_to_stop() && num_own_calls == 1;
            }),
            0);
}

TEST(StopSignal, WhatIsIgnoredStaysIgnored) {
  EXPECT_EQ(in_a_child([] {
              signal(SIGTERM, SIG_IGN);
              heed_stop_signals({SIGTERM});
              raise(SIGTERM);
              return !is_told_to_stop();
            }),
            0);
}

TEST(StopSignal, WhatCannotBeHandledIsRefused) {
  for (const int number : {0, -1, 4711, SIGKILL, SIGSTOP}) EXPECT_THROW(heed_stop_signals({number}), Error) << number;
}

}  // namespace
}  // namespace yoke::dist
