// yoke/base/held_signals.h -- Ctrl-C and the like, held back until what was begun is undone.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <vector>

#include "yoke/base/file.h"

namespace yoke {

/// While this object exists, SIGINT, SIGTERM, SIGHUP and SIGQUIT stay pending, unless they are ignored, as under nohup.
/// They act when it ends. REQUIRES: this process has one thread.
class HeldSignals {
 public:
  HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals();

  bool has_come() const;
  /// Errors  kUnavailable: one of them has come.
  void check() const;

  /// Waits until `fd` is readable. Meanwhile `child` gets those that other processes send, and the hangup of a terminal
  /// if this process is the leader of its session. Others, such as Ctrl-C, come to it from the terminal.
  void wait_readable(int fd, pid_t child);

 private:
  sigset_t held_ = {}, before_ = {};
  UniqueFd fd_;
  std::vector<int> passed_on_;
};

}  // namespace yoke
