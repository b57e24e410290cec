#include "yoke/base/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace yoke {

std::string format_duration(std::chrono::duration<double> duration) {
  const double seconds = duration.count();
  if (!(seconds >= 0) || seconds > 1e12) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  if (whole < 86'400) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{} d {} h", whole / 86'400, whole / 3600 % 24);
}

std::string format_rough_duration(std::chrono::seconds duration) {
  const auto seconds = std::max<int64_t>(0, duration.count());
  const auto text = [](int64_t large, const char* large_unit, int64_t small, const char* small_unit) {
    return small == 0 ? fmt::format("{} {}", large, large_unit)
                      : fmt::format("{} {} {} {}", large, large_unit, small, small_unit);
  };
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 86'400) return text(seconds / 3600, "h", seconds / 60 % 60, "min");
  return text(seconds / 86'400, "d", seconds / 3600 % 24, "h");
}

std::string counted(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string format_bytes(int64_t bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_rate(double per_second) {
  if (!(per_second >= 0)) return "?";
  static constexpr std::array kUnits = {"", " k", " M", " G"};
  size_t unit = 0;
  while (per_second >= 999.5 && unit + 1 < kUnits.size()) {
    per_second /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || per_second >= 99.95 ? 0 : per_second >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", per_second, decimals, kUnits[unit]);
}

}  // namespace yoke
