// yoke/base/format.h -- formats quantities with their units. No other file formats units.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace yoke {

/// Formats for people: "0.4 s", "12 s", "3:07", "1:02:30", "2 d 3 h".
std::string format_duration(std::chrono::duration<double> duration);

/// Formats for sentences, with two units at most: "40 s", "25 min", "2 h 5 min", "3 d 4 h".
std::string format_rough_duration(std::chrono::seconds duration);

/// "1 rank", "3 ranks", "0 ranks".
std::string counted(int64_t count, std::string_view what);

/// Formats in binary units: "512 B", "1.5 GiB".
std::string format_bytes(int64_t bytes);

/// Formats three digits and a decimal unit: "950", "48.2 k", "1.20 M".
std::string format_rate(double per_second);

}  // namespace yoke
