#include "yoke/dist/detail/losses.h"

#include "yoke/dist/shared/engine.h"

namespace yoke::dist {

void Losses::note(const std::vector<int64_t>& ranks) {
  const std::lock_guard lock(mutex_);
  ranks_.insert(ranks.begin(), ranks.end());
  any_ = true;
}

std::vector<int64_t> Losses::ranks() const {
  const std::lock_guard lock(mutex_);
  return {ranks_.begin(), ranks_.end()};
}

void Losses::clear() {
  const std::lock_guard lock(mutex_);
  ranks_.clear();
  any_ = is_superseded_ = false;
}

bool GroupLosses::forgives(const std::exception_ptr& error) const {
  try {
    std::rethrow_exception(error);
  } catch (const shared::RankFailure& failure) {
    if (!failure.has_ended) return false;
    std::vector<int64_t> lost;
    for (const int64_t rank : failure.ranks) lost.push_back(ranks[static_cast<size_t>(rank)]);
    losses->note(lost);
  } catch (...) {
    if (!losses->any()) return false;  // otherwise it may say that the connections of the group have been closed
  }
  return losses->forgives();
}

}  // namespace yoke::dist
