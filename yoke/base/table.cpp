#include "yoke/base/table.h"

#include <algorithm>
#include <numeric>

namespace yoke {
namespace {

constexpr std::string_view kBetween = "  ";

std::vector<int64_t> widths_of(const Table& table, const std::vector<std::vector<std::string>>& cells, int64_t limit) {
  std::vector<int64_t> widths(table.columns.size(), 0);
  for (const auto& row : cells) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  auto excess = std::accumulate(widths.begin(), widths.end(), int64_t{0}) +
                static_cast<int64_t>(kBetween.size() * (widths.size() - 1)) - limit;
  for (size_t i = widths.size(); i-- > 0 && excess > 0;) {
    const auto floor = table.columns[i].shrinks_to;
    if (floor == 0 || widths[i] <= floor) continue;
    const auto less = std::min(excess, widths[i] - floor);
    widths[i] -= less;
    excess -= less;
  }
  return widths;
}

std::string csv_cell(std::string_view cell) {
  const auto text = printable(cell);
  if (text.find_first_of(",\"") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string to_text(const Table& table, int64_t width) {
  std::vector<std::vector<std::string>> cells;
  cells.reserve(table.rows.size() + 1);
  auto& titles = cells.emplace_back();
  for (const auto& column : table.columns) titles.push_back(column.title);
  for (const auto& row : table.rows) {
    auto& line = cells.emplace_back();
    std::transform(row.begin(), row.end(), std::back_inserter(line), printable);
  }
  const auto widths = widths_of(table, cells, width);
  std::string text;
  for (const auto& row : cells) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += kBetween;
      line += pad(row[i], widths[i], table.columns[i].align);
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
