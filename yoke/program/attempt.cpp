#include "yoke/program/attempt.h"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"

namespace yoke::program {
namespace {

volatile pid_t child_of_attempt = -1;

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
volatile sig_atomic_t has_come[NSIG] = {};

/// Forwards signals that the kernel does not send to the child itself: those from kill(2), and the SIGHUP that a
/// session leader gets when its terminal closes. Signals such as Ctrl-C reach the child from the terminal.
void pass_on(int signal, siginfo_t* info, void* /*context*/) {
  const int saved = errno;
  has_come[signal] = 1;
  const bool is_for_us = info->si_code <= 0 || (signal == SIGHUP && getsid(0) == getpid());
  if (is_for_us && child_of_attempt > 0) kill(child_of_attempt, signal);
  errno = saved;
}

/// While this object exists, signals are forwarded to the child.
class Forwarding {
 public:
  Forwarding() {
    struct sigaction action = {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (const int signal : kPassedOn) has_come[signal] = 0;
    for (size_t i = 0; i < kPassedOn.size(); ++i) {
      sigaction(kPassedOn[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN)
        sigaction(kPassedOn[i], &action, nullptr);  // signals that were ignored before, as under nohup, stay ignored
    }
  }
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;
  ~Forwarding() { restore(); }

  void restore() {
    for (size_t i = 0; i < kPassedOn.size(); ++i) sigaction(kPassedOn[i], &before_[i], nullptr);
  }

 private:
  std::array<struct sigaction, kPassedOn.size()> before_ = {};
};

/// REQUIRES: the handlers of this process are back.
void raise_what_came(int status) {
  for (const int signal : kPassedOn) {
    if (has_come[signal] != 0 && status == 128 + signal) return;  // the status tells the caller
  }
  for (const int signal : kPassedOn) {
    if (has_come[signal] != 0) raise(signal);
  }
}

int attempt(const std::function<int(const std::function<void(int)>& finish)>& work) {
  auto pipe = make_pipe();
  // No signal is lost: one that arrives before the child's PID is stored stays pending until then.
  sigset_t passed_on, before;
  sigemptyset(&passed_on);
  for (const int signal : kPassedOn) sigaddset(&passed_on, signal);
  sigprocmask(SIG_BLOCK, &passed_on, &before);
  Forwarding forwarding;
  const pid_t parent = getpid();
  const pid_t child = fork();  // not spawn(): the child continues in this function
  if (child > 0) child_of_attempt = child;
  if (child == 0) forwarding.restore();
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) throw system_error(errno, "starting the process that queries the drivers");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(128 + SIGTERM);
    const auto finish = [&](int status) {
      [[maybe_unused]] const ssize_t written = write(pipe.write_end.value(), &status, sizeof status);
      _exit(status);
    };
    std::exit(work(finish));  // exit() runs the checks of sanitizers, which _exit() skips
  }
  pipe.write_end.reset();

  int status = 0;
  ssize_t count = 0;
  do {
    pollfd news{pipe.read_end.value(), POLLIN, 0};
    poll(&news, 1, -1);  // TSan of GCC 12 delays signals during read(), but not during poll()
    count = read(pipe.read_end.value(), &status, sizeof status);
  } while (count < 0 && errno == EINTR);
  if (count == sizeof status) {
    child_of_attempt = -1;
    return status;  // does not wait for the child, which may never end
  }
  const int result = wait_for_child(child);
  child_of_attempt = -1;
  return result;
}

}  // namespace

int attempt_in_child(const std::function<int(const std::function<void(int)>& finish)>& work,
                     ForwardedSignal forwarded) {
  const int status = attempt(work);
  if (forwarded == ForwardedSignal::kRaised) raise_what_came(status);
  return status;
}

}  // namespace yoke::program
