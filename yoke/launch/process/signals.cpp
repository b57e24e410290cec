#include "yoke/launch/process/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <set>

#include "yoke/base/error.h"

namespace yoke::launch {

namespace {

/// A write beyond the limit of file sizes (`ulimit -f`) then fails with EFBIG, as on a full disk. By a handler, since
/// exec takes it away again: ranks have the signal as this process had it.
void fail_beyond_file_limit() {
  struct sigaction action {};
  sigaction(SIGXFSZ, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  sigaction(SIGXFSZ, &action, nullptr);
}

}  // namespace

UniqueFd take_signals(const std::vector<int>& stop_signals) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  fail_beyond_file_limit();
  sigset_t handled;
  sigemptyset(&handled);
  std::set<int> numbers(stop_signals.begin(), stop_signals.end());
  numbers.insert({SIGUSR1, SIGUSR2});
  for (const int number : numbers) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&handled, number);
  }
  sigset_t blocked = handled;
  sigaddset(&blocked, SIGCHLD);  // end_descendants() waits for it
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  UniqueFd fd(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) throw system_error(errno, "taking signals");
  return fd;
}

int next_signal(const UniqueFd& signals) {
  signalfd_siginfo info;
  return read(signals.value(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace yoke::launch
