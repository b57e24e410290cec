// yoke/base/clock.h -- the clock of all durations and deadlines. It runs evenly, whatever the time of day is set to.
#pragma once

#include <chrono>

namespace yoke {

using Clock = std::chrono::steady_clock;

}  // namespace yoke
