// yoke/base/moment.h -- points in time as users write and read them, in the time zone of the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yoke {

/// "14:00" and "9:30:15" (today), "today 14:00", "tomorrow 9:00", "2026-11-24 09:00", "2026-11-24T09:00:00Z",
/// "2026-11-24T09:00+01:00", "2026-11-24" (midnight), "+2h" and "now". nullopt: any other text, or a time that the
/// calendar does not have.
std::optional<std::chrono::system_clock::time_point> parse_moment(std::string_view text,
                                                                  std::chrono::system_clock::time_point now);

/// The whole seconds since 1970.
inline int64_t seconds_since_epoch(std::chrono::system_clock::time_point moment) {
  return std::chrono::duration_cast<std::chrono::seconds>(moment.time_since_epoch()).count();
}

/// "2026-11-24 09:00:00".
std::string moment_text(std::chrono::system_clock::time_point moment);

}  // namespace yoke
