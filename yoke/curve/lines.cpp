// Parses the two formats that have one record per line: CSV and JSON lines.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "yoke/curve/log.h"

namespace yoke::curve {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const auto begin = text.find_first_not_of(kBlanks);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// Parses a number, "nan", "inf" or "Infinity", with or without a sign. A number too large becomes infinite.
std::optional<double> number_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || text.empty()) return std::nullopt;
  if (error == std::errc()) return number;
  const bool is_small = text.find("e-") != text.npos || text.find("E-") != text.npos;  // too small for a double
  return is_small ? 0 : text.starts_with('-') ? -HUGE_VAL : HUGE_VAL;
}

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // UTF-8; spreadsheets write it first

/// Calls `take` for every complete line. If `is_end`, calls `take_last` for a last line without a line feed. Returns
/// the length of the lines for which `take` or `take_last` was called.
template <class Take, class TakeLast>
size_t take_lines(std::string_view bytes, bool is_end, const Take& take, const TakeLast& take_last) {
  size_t begin = bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  for (size_t end = bytes.find('\n'); end != bytes.npos; begin = end + 1, end = bytes.find('\n', begin)) {
    take(bytes.substr(begin, end - begin));
  }
  if (!is_end) return begin;
  if (begin < bytes.size()) take_last(bytes.substr(begin));
  return bytes.size();
}

}  // namespace

size_t CsvParser::take(std::string_view bytes, bool is_end) {
  // An unfinished last line is not parsed, because digits of its last number may be missing.
  return take_lines(
      bytes, is_end, [&](std::string_view line) { take_line(line); }, [](std::string_view) {});
}

void CsvParser::take_line(std::string_view line) {
  ++num_lines_;
  if (trimmed(line).empty()) return;
  size_t num_cells = 0;
  for (size_t i = 0; i <= line.size(); ++num_cells) {
    if (num_cells == cells_.size()) cells_.emplace_back();
    auto& cell = cells_[num_cells];
    cell.clear();
    if (line.substr(i).starts_with('"')) {  // a quoted cell, as in RFC 4180
      for (++i; i < line.size(); ++i) {
        if (line[i] == '"' && !line.substr(i + 1).starts_with('"')) break;
        cell += line[i];
        if (line[i] == '"') ++i;
      }
      i = std::min(line.find(',', i), line.size()) + 1;
    } else {
      const auto end = std::min(line.find(',', i), line.size());
      cell = trimmed(line.substr(i, end - i));
      i = end + 1;
    }
  }
  if (columns_.empty()) {
    columns_.assign(cells_.begin(), cells_.begin() + static_cast<std::ptrdiff_t>(num_cells));
    const auto has = [&](std::string_view name) { return std::ranges::find(columns_, name) != columns_.end(); };
    adds_seconds_ = has("seconds") && has(kEpoch) && !has(kTime);
    return;
  }
  if (num_cells != columns_.size()) {
    return damaged(fmt::format("line {} has {} cells, and the header {}", num_lines_, num_cells, columns_.size()));
  }
  Place place{kNaN, kNaN, kNaN};
  for (size_t i = 0; i < num_cells; ++i) {
    double* to = columns_[i] == kStep    ? &place.step
                 : columns_[i] == kEpoch ? &place.epoch
                 : columns_[i] == kTime  ? &place.time
                                         : nullptr;
    if (to != nullptr) *to = number_of(cells_[i]).value_or(kNaN);
    if (adds_seconds_ && columns_[i] == "seconds") place.time = seconds_ += number_of(cells_[i]).value_or(0);
  }
  bool is_whole = true;
  for (size_t i = 0; i < num_cells; ++i) {
    if (cells_[i].empty() || columns_[i] == kStep || columns_[i] == kEpoch || columns_[i] == kTime) continue;
    const auto number = number_of(cells_[i]);
    if (number) log().add(columns_[i], place, *number);
    is_whole = is_whole && number;
  }
  if (!is_whole) damaged(fmt::format("line {} has a cell that is not a number", num_lines_));
}

size_t JsonLinesParser::take(std::string_view bytes, bool is_end) {
  // A last line without a line feed may be parsed, because a complete object ends with a brace.
  return take_lines(
      bytes, is_end, [&](std::string_view line) { take_line(line); },
      [&](std::string_view line) {
        if (take_flat(line)) add_values();
      });
}

void JsonLinesParser::take_line(std::string_view line) {
  ++num_lines_;
  if (trimmed(line).empty()) return;
  if (take_flat(line)) return add_values();
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return damaged(fmt::format("line {} is not a JSON object", num_lines_));
  num_numbers_ = 0;
  numbers_.clear();
  for (const auto& [name, value] : json.items()) {
    if (value.is_number()) numbers_.emplace_back(name, value.get<double>());
    if (value.is_null()) numbers_.emplace_back(name, kNaN);
  }
  num_numbers_ = numbers_.size();
  add_values();
}

/// Reads an object without nested objects and without backslashes, as nearly every line is. This is ten times as fast
/// as building a tree. Returns false for all other lines.
bool JsonLinesParser::take_flat(std::string_view line) {
  num_numbers_ = 0;
  line = trimmed(line);
  if (!line.starts_with('{') || !line.ends_with('}')) return false;
  line = trimmed(line.substr(1, line.size() - 2));
  while (!line.empty()) {
    if (line.front() != '"') return false;
    const auto name_end = line.find('"', 1);
    if (name_end == line.npos) return false;
    const auto name = line.substr(1, name_end - 1);
    if (name.find('\\') != name.npos) return false;
    line = trimmed(line.substr(name_end + 1));
    if (!line.starts_with(':')) return false;
    line = trimmed(line.substr(1));
    std::optional<double> number;
    if (line.starts_with('"')) {
      const auto end = line.find('"', 1);
      if (end == line.npos) return false;
      const auto text = line.substr(1, end - 1);
      if (text.find('\\') != text.npos) return false;
      const auto word = number_of(text);
      if (word && !std::isfinite(*word)) number = word;  // such as "NaN"; other strings are skipped
      line = trimmed(line.substr(end + 1));
      if (!line.empty() && line.front() != ',') return false;
    } else {
      const auto end = std::min(line.find(','), line.size());
      const auto word = trimmed(line.substr(0, end));
      number = word == "null" ? kNaN : number_of(word);
      if (!number && word != "true" && word != "false") return false;
      line.remove_prefix(end);
    }
    if (number) {
      if (num_numbers_ == numbers_.size()) numbers_.emplace_back();
      numbers_[num_numbers_].first = name;
      numbers_[num_numbers_++].second = *number;
    }
    if (line.empty()) return true;
    line = trimmed(line.substr(1));
    if (line.empty()) return false;  // a comma without a member after it
  }
  return true;
}

void JsonLinesParser::add_values() {
  Place place{kNaN, kNaN, kNaN};
  for (size_t i = 0; i < num_numbers_; ++i) {
    const auto& [name, number] = numbers_[i];
    if (name == kStep) place.step = number;
    if (name == kEpoch) place.epoch = number;
    if (name == kTime) place.time = number;
  }
  for (size_t i = 0; i < num_numbers_; ++i) {
    const auto& [name, number] = numbers_[i];
    if (name != kStep && name != kEpoch && name != kTime) log().add(name, place, number);
  }
}

}  // namespace yoke::curve
