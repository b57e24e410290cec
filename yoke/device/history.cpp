#include "yoke/device/history.h"

namespace yoke::device {

void History::push(Time time, std::optional<double> value) {
  samples_.push_back({time, value});
  while (samples_.size() > capacity_) samples_.pop_front();
}

}  // namespace yoke::device
