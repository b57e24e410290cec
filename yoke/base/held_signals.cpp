#include "yoke/base/held_signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "yoke/base/error.h"

namespace yoke {
namespace {

constexpr int kHeld[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

}  // namespace

HeldSignals::HeldSignals() {
  sigemptyset(&held_);
  for (const int signal : kHeld) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&held_, signal);  // the kernel keeps a blocked signal though ignored
  }
  sigprocmask(SIG_BLOCK, &held_, &before_);
  fd_ = UniqueFd(signalfd(-1, &held_, SFD_CLOEXEC | SFD_NONBLOCK));
}

HeldSignals::~HeldSignals() {
  for (const int signal : passed_on_) raise(signal);  // pending until the next line
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

bool HeldSignals::has_come() const {
  if (!passed_on_.empty()) return true;
  sigset_t pending;
  sigpending(&pending);
  return std::any_of(std::begin(kHeld), std::end(kHeld), [&](int signal) {
    return sigismember(&held_, signal) == 1 && sigismember(&pending, signal) == 1;
  });
}

void HeldSignals::check() const {
  if (has_come()) throw Error(ErrorCode::kUnavailable, "interrupted by a signal");
}

void HeldSignals::wait_readable(int fd, pid_t child) {
  for (;;) {
    pollfd news[] = {{fd, POLLIN, 0}, {fd_.value(), POLLIN, 0}};
    poll(news, 2, -1);
    signalfd_siginfo info = {};
    while (news[1].revents != 0 && read(fd_.value(), &info, sizeof info) == sizeof info) {
      passed_on_.push_back(static_cast<int>(info.ssi_signo));
      // As in siginfo_t, SI_USER is 0, and the kernel's codes are above.
      const bool is_for_us = info.ssi_code <= 0 || (info.ssi_signo == SIGHUP && getsid(0) == getpid());
      if (is_for_us) kill(child, passed_on_.back());
    }
    if (news[0].revents != 0) return;
  }
}

}  // namespace yoke
