#include "yoke/device/history.h"

#include <algorithm>

namespace yoke::device {

void History::push(Time time, std::optional<double> value) {
  samples_.push_back({time, value});
  while (samples_.size() > capacity_) samples_.pop_front();
}

std::vector<History::Sample> History::window(std::chrono::duration<double> length) const {
  if (samples_.empty()) return {};
  const auto newest = samples_.back().time;
  const auto first =
      std::ranges::find_if(samples_, [&](const Sample& sample) { return newest - sample.time <= length; });
  return {first, samples_.end()};
}

}  // namespace yoke::device
