// yoke/keep/detail/keeping.h -- what those who keep a claim share: its end, signals, and what its user is told.
#pragma once

#include <optional>
#include <string>

#include "yoke/base/clock.h"
#include "yoke/base/tell.h"
#include "yoke/claim/ledger.h"
#include "yoke/program/watched_program.h"

namespace yoke::keep {

/// The end of a claim is measured by a clock that nobody sets; the text of the claim only says by how much
/// `yoke extend` has put it off.
class ClaimEnd {
 public:
  explicit ClaimEnd(const claim::Claim& claim);
  bool is_over();
  int milliseconds_left() const;  ///< For poll(): at most a minute, after which the claim shows that it still runs.

 private:
  const claim::Claim& claim_;
  std::optional<claim::Time> until_;
  Clock::time_point end_ = Clock::time_point::max();
};

/// The sooner of two limits for poll(), for which -1 is never.
int sooner(int a, int b);

/// Whether a signal is to be passed on: the terminal signals the program, too, except that a hangup reaches the leader
/// of the session alone.
bool is_for_us(const program::SignalMessages::Message& message);

/// Leaves terminal, streams and folder of the user, and lives on without the process that started this one. `name` is
/// the one of this process from now on.
void leave_terminal(const char* name);

/// Tells the user here, and on other terminals.
void tell_everywhere(const Tell& tell, const std::string& text);

/// " by root" if somebody else sent the signal.
std::string by_whom(const program::SignalMessages::Message& message);

}  // namespace yoke::keep
