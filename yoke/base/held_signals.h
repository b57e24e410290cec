// yoke/base/held_signals.h -- Ctrl-C and the like, held back until what was begun is undone.
#pragma once

#include <csignal>

namespace yoke {

/// While this object exists, SIGINT, SIGTERM, SIGHUP and SIGQUIT stay pending, unless they are ignored, as under nohup.
/// They act when it ends. REQUIRES: this process has one thread.
class HeldSignals {
 public:
  HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals();

  /// Errors  kUnavailable: one of them is pending.
  void check() const;

 private:
  sigset_t held_ = {}, before_ = {};
};

}  // namespace yoke
