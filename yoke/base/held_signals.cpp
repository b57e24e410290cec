#include "yoke/base/held_signals.h"

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
}

HeldSignals::~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

void HeldSignals::check() const {
  sigset_t pending;
  sigpending(&pending);
  for (const int signal : kHeld) {
    if (sigismember(&held_, signal) == 1 && sigismember(&pending, signal) == 1) {
      throw Error(ErrorCode::kUnavailable, "interrupted by a signal");
    }
  }
}

}  // namespace yoke
