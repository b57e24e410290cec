// Parses CSV, as trainings and spreadsheets write it.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/curve/detail/values.h"
#include "yoke/curve/log.h"

namespace yoke::curve {

size_t CsvParser::take(std::string_view bytes, bool is_end) {
  // A few spreadsheets end lines with a carriage return alone.
  if (is_end && num_lines_ == 0 && bytes.find('\n') == bytes.npos) line_end_ = '\r';
  return take_lines(
      bytes, line_end_, is_end, [&](std::string_view line) { take_line(line, LineEnd::kIsThere); },
      [&](std::string_view line) { take_line(line, LineEnd::kIsMissing); });
}

void CsvParser::split_cells(std::string_view line) {
  num_cells_ = 0;
  for (size_t i = 0; i <= line.size(); ++num_cells_) {
    if (num_cells_ == cells_.size()) cells_.emplace_back();
    auto& cell = cells_[num_cells_];
    cell.clear();
    if (line.substr(i).starts_with('"')) {  // a quoted cell, as in RFC 4180
      for (++i; i < line.size(); ++i) {
        if (line[i] == '"' && !line.substr(i + 1).starts_with('"')) break;
        cell += line[i];
        if (line[i] == '"') ++i;
      }
      i = std::min(line.find(separator_, i), line.size()) + 1;
    } else {
      const auto end = std::min(line.find(separator_, i), line.size());
      cell = trimmed(line.substr(i, end - i));
      if (separator_ != ',') std::ranges::replace(cell, ',', '.');  // spreadsheets of many countries write 0,5
      i = end + 1;
    }
  }
}

std::span<const std::string> CsvParser::cells() const { return {cells_.data(), num_cells_}; }

/// Takes the names of the columns from the cells.
void CsvParser::begin_columns() {
  columns_.clear();
  const PlaceName* places[3] = {};  // the best names so far for Position::step, epoch and time
  const auto place_at = [&](const PlaceName& name) -> const PlaceName*& {
    return places[name.place == &Position::step ? 0 : name.place == &Position::epoch ? 1 : 2];
  };
  bool has_seconds = false;
  for (const auto& name : cells()) {
    if (const auto* known = place_name(name)) {
      auto& best = place_at(*known);
      if (best == nullptr || known < best) best = known;
    }
    has_seconds = has_seconds || name == "seconds";
  }
  for (const auto& name : cells()) {
    const auto* known = place_name(name);
    const bool is_place = known != nullptr && known == place_at(*known);
    columns_.push_back(
        {.name = name, .place = is_place ? known->place : nullptr, .is_metric = known == nullptr && !name.empty()});
  }
  adds_seconds_ = has_seconds && places[1] != nullptr && places[2] == nullptr;
}

/// Whether the line is a header: only names, of which one is known. Programs that append to a file write it again.
bool CsvParser::is_header() const {
  return std::ranges::none_of(cells(), [](const std::string& cell) { return cell.empty() || number_of(cell); }) &&
         std::ranges::any_of(cells(), [&](const std::string& cell) {
           return std::ranges::find(columns_, cell, &Column::name) != columns_.end();
         });
}

/// Returns whether the line is the header.
bool CsvParser::begin(std::string_view line) {
  if (line.find(',') == line.npos) {
    separator_ = line.find('\t') != line.npos ? '\t' : line.find(';') != line.npos ? ';' : ',';
  }
  split_cells(line);
  const bool has_names =
      !std::ranges::all_of(cells(), [](const std::string& cell) { return number_of(cell).has_value(); });
  if (has_names) {
    begin_columns();
    return true;
  }
  const auto num_columns = num_cells_;
  split_cells(comment_);  // numpy.savetxt writes its header as a comment
  if (comment_.empty() || num_cells_ != num_columns) {
    doubt("it has no header, so its columns are called 'column 1' and so on");
    cells_.resize(std::max(cells_.size(), num_columns));
    for (num_cells_ = 0; num_cells_ < num_columns; ++num_cells_)
      cells_[num_cells_] = fmt::format("column {}", num_cells_ + 1);
  }
  begin_columns();
  return false;
}

void CsvParser::take_line(std::string_view line, LineEnd end) {
  ++num_lines_;
  const auto text = trimmed(line);
  if (text.empty()) return;
  if (text.starts_with('#')) {
    comment_ = trimmed(text.substr(std::min(text.find_first_not_of('#'), text.size())));
    return;
  }
  if (columns_.empty() && begin(line)) return;
  split_cells(line);
  if (!number_of(cells_[0]) && is_header()) return begin_columns();
  if (num_cells_ != columns_.size()) {
    if (end == LineEnd::kIsMissing) return;  // it is still being written
    return damaged(fmt::format("line {} has {} cells, and the header {}", num_lines_, num_cells_, columns_.size()));
  }
  take_cells(end);
}

void CsvParser::take_cells(LineEnd end) {
  Position place{kNaN, kNaN, kNaN};
  for (size_t i = 0; i < num_cells_; ++i) {
    if (columns_[i].place != nullptr) place.*columns_[i].place = number_of(cells_[i]).value_or(kNaN);
    if (adds_seconds_ && columns_[i].name == "seconds") place.time = seconds_ += number_of(cells_[i]).value_or(0);
  }
  if (end == LineEnd::kIsMissing && number_of(cells_[num_cells_ - 1])) {
    doubt("the last line has no line feed, so its last number may be incomplete");
  }
  bool is_whole = true;
  for (size_t i = 0; i < num_cells_; ++i) {
    auto& column = columns_[i];
    if (cells_[i].empty() || !column.is_metric) continue;
    const auto number = number_of(cells_[i]);
    const bool may_be_cut = end == LineEnd::kIsMissing && i + 1 == num_cells_;
    if (number) log().add(column.name, place, *number);
    // A column without any number is text, such as notes and dates.
    is_whole = is_whole && (number || may_be_cut || !column.has_numbers);
    column.has_numbers = column.has_numbers || number;
  }
  if (!is_whole) damaged(fmt::format("line {} has a cell that is not a number", num_lines_));
}

}  // namespace yoke::curve
