#include "yoke/dist/detail/stop_signal.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "yoke/base/error.h"

namespace yoke::dist {
namespace {

volatile sig_atomic_t num_own_calls = 0;

/// Runs a test in its own process, because handlers stay installed. Returns the process's exit code, or 128 + the
/// signal that ended it.
int in_a_child(const std::function<bool()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGINT, SIG_DFL);  // shells let jobs in the background ignore it
    _exit(body() ? 0 : 1);
  }
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

TEST(StopSignal, TheFirstInterruptIsARequestAndALaterOneKills) {
  EXPECT_EQ(in_a_child([] {
              heed_stop_signals({SIGINT});
              raise(SIGINT);
              return is_told_to_stop();
            }),
            0);
  EXPECT_EQ(in_a_child([] {
              heed_stop_signals({SIGINT});
              alarm(300);                  // if nothing kills it before
              while (true) raise(SIGINT);  // those that come at once are one request
              return true;
            }),
            128 + SIGINT);
  constexpr int64_t kSecondNs = 1'000'000'000, kFirstNs = 7 * kSecondNs;
  EXPECT_FALSE(is_second_interrupt(kFirstNs, kFirstNs)) << "from the terminal, and from a launcher at once";
  EXPECT_FALSE(is_second_interrupt(kFirstNs, kFirstNs + kSecondNs / 2));
  EXPECT_TRUE(is_second_interrupt(kFirstNs, kFirstNs + kSecondNs));
}

TEST(StopSignal, TheFirstInterruptSaysThatASecondOneKills) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(in_a_child([&] {
              dup2(ends[1], STDERR_FILENO);
              heed_stop_signals({SIGINT, SIGTERM}, "stopping\n");
              raise(SIGTERM);
              raise(SIGINT);
              return is_told_to_stop();
            }),
            0);
  close(ends[1]);
  char text[100];
  EXPECT_EQ(std::string(text, static_cast<size_t>(read(ends[0], text, sizeof text))), "stopping\n");
  close(ends[0]);
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
              signal(SIGINT, [](int) { num_own_calls = num_own_calls + 100; });
              heed_stop_signals({SIGTERM, SIGUSR1, SIGINT});
              raise(SIGTERM);
              raise(SIGUSR1);
              raise(SIGUSR1);
              raise(SIGINT);
              return is_told_to_stop() && num_own_calls == 121;
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
