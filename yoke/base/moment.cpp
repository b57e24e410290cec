#include "yoke/base/moment.h"

#include <array>
#include <ctime>

#include "yoke/base/quantity.h"
#include "yoke/base/text.h"

namespace yoke {
namespace {

using std::chrono::system_clock;

/// Removes a number of `least` to `most` digits from the beginning.
std::optional<int> take_digits(std::string_view& text, size_t least, size_t most) {
  size_t count = 0;
  int number = 0;
  for (; count < text.size() && count < most && is_digit(text[count]); ++count)
    number = number * 10 + (text[count] - '0');
  if (count < least || (count < text.size() && is_digit(text[count]))) return std::nullopt;
  text.remove_prefix(count);
  return number;
}

bool take_char(std::string_view& text, char character) {
  if (text.empty() || text[0] != character) return false;
  text.remove_prefix(1);
  return true;
}

/// "2026-11-24" at the beginning.
bool take_date(std::string_view& text, std::tm& fields) {
  const auto year = take_digits(text, 4, 4);
  const auto month = year && take_char(text, '-') ? take_digits(text, 2, 2) : std::nullopt;
  const auto day = month && take_char(text, '-') ? take_digits(text, 2, 2) : std::nullopt;
  if (!day) return false;
  fields.tm_year = *year - 1900;
  fields.tm_mon = *month - 1;
  fields.tm_mday = *day;
  return true;
}

/// "9:00" or "09:00:15" at the beginning.
bool take_clock(std::string_view& text, std::tm& fields) {
  const auto hour = take_digits(text, 1, 2);
  const auto minute = hour && take_char(text, ':') ? take_digits(text, 2, 2) : std::nullopt;
  const auto second = minute && take_char(text, ':') ? take_digits(text, 2, 2) : std::optional(0);
  if (!minute || !second || *hour > 23 || *minute > 59 || *second > 59) return false;
  fields.tm_hour = *hour;
  fields.tm_min = *minute;
  fields.tm_sec = *second;
  return true;
}

/// "Z", "+01:00" or "-0530", in seconds east of Greenwich; nullopt: it is none of these.
std::optional<int> parse_zone(std::string_view text) {
  if (text == "Z" || text == "z") return 0;
  if (text.empty() || (text[0] != '+' && text[0] != '-')) return std::nullopt;
  const int sign = text[0] == '-' ? -1 : 1;
  text.remove_prefix(1);
  std::array<int, 2> parts = {};
  for (auto& part : parts) {
    if (text.size() < 2 || !is_digit(text[0]) || !is_digit(text[1])) return std::nullopt;
    part = (text[0] - '0') * 10 + (text[1] - '0');
    text.remove_prefix(2);
    take_char(text, ':');
  }
  if (!text.empty() || parts[0] > 14 || parts[1] > 59) return std::nullopt;
  return sign * (parts[0] * 3600 + parts[1] * 60);
}

std::optional<system_clock::time_point> to_moment(std::tm fields, const std::optional<int>& zone) {
  const auto wanted = fields;
  fields.tm_isdst = -1;
  const auto seconds = zone ? timegm(&fields) : mktime(&fields);
  // The functions accept the 31st of February, and change it.
  if (fields.tm_mday != wanted.tm_mday || fields.tm_mon != wanted.tm_mon || fields.tm_hour != wanted.tm_hour) {
    return std::nullopt;
  }
  constexpr time_t kLatest = 9'000'000'000;  // the clock counts nanoseconds, and ends in the year 2262
  if (seconds > kLatest) return std::nullopt;
  return system_clock::from_time_t(seconds - zone.value_or(0));
}

}  // namespace

std::optional<system_clock::time_point> parse_moment(std::string_view text, system_clock::time_point now) {
  if (text == "now") return now;
  if (text.starts_with('+')) {
    const auto length = parse_length(text.substr(1));
    return length ? std::optional(now + *length) : std::nullopt;
  }
  const auto seconds = system_clock::to_time_t(now);
  std::tm fields = {};
  localtime_r(&seconds, &fields);
  fields.tm_hour = fields.tm_min = fields.tm_sec = 0;
  for (const std::string_view day : {"today", "tomorrow"}) {
    if (!text.starts_with(day)) continue;
    text.remove_prefix(day.size());
    if (!take_char(text, ' ')) return std::nullopt;
    if (day == "tomorrow") {
      fields.tm_mday += 1;
      fields.tm_isdst = -1;
      mktime(&fields);  // the last day of a month
    }
    return take_clock(text, fields) && text.empty() ? to_moment(fields, {}) : std::nullopt;
  }
  const bool has_date = text.size() >= 5 && text[4] == '-';
  if (!has_date) return take_clock(text, fields) && text.empty() ? to_moment(fields, {}) : std::nullopt;
  if (!take_date(text, fields)) return std::nullopt;
  if (text.empty()) return to_moment(fields, {});
  if (!take_char(text, ' ') && !take_char(text, 'T')) return std::nullopt;
  if (!take_clock(text, fields)) return std::nullopt;
  if (text.empty()) return to_moment(fields, {});
  const auto zone = parse_zone(text);
  return zone ? to_moment(fields, zone) : std::nullopt;
}

std::string moment_text(system_clock::time_point moment) {
  const auto seconds = system_clock::to_time_t(moment);
  std::tm local = {};
  char text[32] = {};
  std::strftime(text, sizeof text, "%F %T", localtime_r(&seconds, &local));
  return text;
}

}  // namespace yoke
