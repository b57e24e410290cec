#include "yoke/base/table.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace yoke {
namespace {

constexpr std::string_view kBetween = "  ";

int64_t total_of(const std::vector<int64_t>& widths) {
  const auto between = kBetween.size() * (std::max<size_t>(1, widths.size()) - 1);
  return std::accumulate(widths.begin(), widths.end(), static_cast<int64_t>(between));
}

/// Returns `widths` with columns shrunk until they fit into `limit`, or as far as they can shrink. Only columns whose
/// shrinks_late equals `is_late` shrink, the last one first.
std::vector<int64_t> shrunk(const std::vector<Column>& columns, std::vector<int64_t> widths, int64_t limit,
                            bool is_late) {
  auto excess = total_of(widths) - limit;
  for (size_t i = widths.size(); i-- > 0 && excess > 0;) {
    const auto floor = columns[i].shrinks_to;
    if (columns[i].shrinks_late != is_late || floor == 0 || widths[i] <= floor) continue;
    const auto less = std::min(excess, widths[i] - floor);
    widths[i] -= less;
    excess -= less;
  }
  return widths;
}

/// Returns the next column to drop, or nullopt if all must stay.
std::optional<size_t> next_to_drop(const std::vector<Column>& columns) {
  std::optional<size_t> first;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].drop_order == 0) continue;
    if (!first || columns[i].drop_order < columns[*first].drop_order) first = i;
  }
  return first;
}

}  // namespace

std::string csv_cell(std::string_view cell) {
  const auto text = printable(cell);
  if (text.find_first_of(",\"") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string to_text(const Table& table, int64_t width) {
  auto columns = table.columns;
  std::vector<std::vector<std::string>> cells;
  cells.reserve(table.rows.size() + 1);
  auto& titles = cells.emplace_back();
  for (const auto& column : columns) titles.push_back(column.title);
  for (const auto& row : table.rows) {
    auto& line = cells.emplace_back();
    std::ranges::transform(row, std::back_inserter(line), printable);
  }
  std::vector<int64_t> full(columns.size(), 0);
  for (const auto& row : cells) {
    for (size_t i = 0; i < row.size(); ++i) full[i] = std::max(full[i], display_width(row[i]));
  }
  auto widths = shrunk(columns, full, width, false);
  for (auto drop = next_to_drop(columns); drop && total_of(widths) > width; drop = next_to_drop(columns)) {
    const auto at = static_cast<std::ptrdiff_t>(*drop);
    columns.erase(columns.begin() + at);
    full.erase(full.begin() + at);
    for (auto& row : cells) row.erase(row.begin() + at);
    widths = shrunk(columns, full, width, false);  // the dropped column leaves room for the others
  }
  widths = shrunk(columns, std::move(widths), width, true);
  std::string text;
  for (const auto& row : cells) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += kBetween;
      line += pad(row[i], widths[i], columns[i].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += fit(line, width) + '\n';
  }
  return text;
}

std::string to_csv(const Table& table) {
  std::string text;
  const auto add = [&](const auto& cells, const auto& text_of) {
    for (size_t i = 0; i < cells.size(); ++i) text += (i > 0 ? "," : "") + csv_cell(text_of(cells[i]));
    text += '\n';
  };
  add(table.columns, [](const Column& column) { return column.title; });
  for (const auto& row : table.rows) add(row, [](const std::string& cell) { return cell; });
  return text;
}

}  // namespace yoke
