// yoke/keep/claim_end.h -- when a claim ends.
#pragma once

#include <optional>

#include "yoke/base/clock.h"
#include "yoke/claim/ledger.h"

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

}  // namespace yoke::keep
