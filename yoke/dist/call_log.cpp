#include "yoke/dist/detail/call_log.h"

#include <fmt/format.h>

namespace yoke::dist {

void CallLog::push(Entry entry) {
  entries_[next_] = entry;
  next_ = (next_ + 1) % entries_.size();
}

void CallLog::add(uint64_t number, const char* name, int64_t num_elements, at::ScalarType dtype) {
  const std::lock_guard lock(mutex_);
  if (activity_ != nullptr) {
    push({.number = number, .name = activity_});
  } else {
    push({.number = number, .name = name, .num_elements = num_elements, .dtype = dtype});
  }
}

bool CallLog::begin(const char* activity, uint64_t now) {
  const std::lock_guard lock(mutex_);
  if (activity_ != nullptr) return false;
  activity_ = activity;
  activity_begin_ = now;
  return true;
}

void CallLog::forget() {
  const std::lock_guard lock(mutex_);
  entries_ = {};
  next_ = 0;
  activity_ = nullptr;
}

void CallLog::end(uint64_t now) {
  const std::lock_guard lock(mutex_);
  if (activity_ == nullptr) return;
  const auto& newest = entries_[(next_ + entries_.size() - 1) % entries_.size()];
  if (now > activity_begin_ && now > newest.number) push({.number = now, .name = activity_});
  activity_ = nullptr;
}

std::vector<Call> CallLog::last(uint64_t now) const {
  const std::lock_guard lock(mutex_);
  std::vector<Call> calls;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto& entry = entries_[(next_ + i) % entries_.size()];
    if (entry.number == 0) continue;
    calls.push_back({entry.number, entry.num_elements < 0 ? entry.name
                                                          : fmt::format("{} of {} {}", entry.name, entry.num_elements,
                                                                        c10::toString(entry.dtype))});
  }
  // An activity that began after `now` was read has begun at `now` or later, so it does not name this collective.
  const bool is_newer = calls.empty() || now > calls.back().number;
  if (activity_ != nullptr && now > activity_begin_ && is_newer) calls.push_back({now, activity_});
  return calls;
}

}  // namespace yoke::dist
