// yoke/base/format.h -- quantities with their units as text; nothing else formats units.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace yoke {

/// "0.4 s", "12 s", "3:07", "1:02:30", "2 d 3 h": short, for people.
std::string format_duration(std::chrono::duration<double> duration);

/// Binary units: "512 B", "1.5 GiB".
std::string format_bytes(int64_t bytes);

/// Three digits and a decimal unit: "950", "48.2 k", "1.20 M".
std::string format_rate(double per_second);

}  // namespace yoke
