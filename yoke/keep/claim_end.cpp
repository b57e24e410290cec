#include "yoke/keep/claim_end.h"

#include <algorithm>

namespace yoke::keep {

ClaimEnd::ClaimEnd(const claim::Claim& claim) : claim_(claim), until_(claim.note().until) {
  // An heir comes later than the claim's begin.
  const auto begin = claim.is_shared() ? std::chrono::system_clock::now() : claim.note().since;
  if (until_) end_ = Clock::now() + (*until_ - begin);
}

bool ClaimEnd::is_over() {
  if (Clock::now() < end_) return false;
  const auto now = claim_.read().until;
  if (!now || *now <= *until_) return true;
  end_ += *now - *until_;
  until_ = now;
  return Clock::now() >= end_;
}

int ClaimEnd::milliseconds_left() const {
  constexpr int64_t kMinute = 60'000;
  if (end_ == Clock::time_point::max()) return kMinute;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, kMinute));
}

int sooner(int a, int b) { return a < 0 || b < 0 ? std::max(a, b) : std::min(a, b); }

}  // namespace yoke::keep
