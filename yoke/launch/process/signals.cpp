#include "yoke/launch/process/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <set>

#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

constexpr std::array kJobControl = {SIGTSTP, SIGTTIN, SIGTTOU};

}  // namespace

void fail_instead_of(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

UniqueFd take_signals(const std::vector<int>& stop_signals) {
  fail_instead_of(SIGPIPE);
  fail_instead_of(SIGXFSZ);  // a write beyond the file size limit (`ulimit -f`) is handled like a full disk
  signal(SIGCHLD, SIG_DFL);
  sigset_t handled;
  sigemptyset(&handled);
  std::set<int> numbers(stop_signals.begin(), stop_signals.end());
  numbers.insert({SIGUSR1, SIGUSR2});
  numbers.insert(kJobControl.begin(), kJobControl.end());
  for (const int number : numbers) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&handled, number);
  }
  sigset_t blocked = handled;
  sigaddset(&blocked, SIGCHLD);  // end_descendants() waits for this signal
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  UniqueFd fd(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) throw system_error(errno, "making a descriptor that receives signals");
  return fd;
}

std::optional<Signal> next_signal(const UniqueFd& signals) {
  signalfd_siginfo info;
  if (read(signals.value(), &info, sizeof info) != sizeof info) return std::nullopt;
  const int number = static_cast<int>(info.ssi_signo);
  const bool is_hangup_of_leader = number == SIGHUP && getsid(0) == getpid();
  const pid_t sender = info.ssi_code == SI_USER ? static_cast<pid_t>(info.ssi_pid) : 0;
  return Signal{number, info.ssi_code == SI_KERNEL && !is_hangup_of_leader, sender};
}

bool is_job_control(int signal) { return std::ranges::find(kJobControl, signal) != kJobControl.end(); }

void stop_by(int signal) {
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  raise(signal);  // the blocked signal stays pending; a SIGCONT that arrives now cancels it
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  sigprocmask(SIG_BLOCK, &only, nullptr);
}

}  // namespace yoke::launch
