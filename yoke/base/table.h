// yoke/base/table.h -- rows of text as columns for people, or as CSV for programs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/text.h"

namespace yoke {

struct Column {
  std::string title;
  Align align = Align::kLeft;
  /// The minimum width to which the column shrinks if the table does not fit; 0: it does not shrink.
  int64_t shrinks_to = 0;
  int64_t drop_order = 0;     ///< If shrinking is not enough, columns are dropped in this order, from 1; 0: never.
  bool shrinks_late = false;  ///< The column shrinks only after all columns with a drop_order were dropped.
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  ///< Each row has one cell per column. Cells may hold any bytes.
};

/// Formats the table as lines of at most `width` characters: titles first, two spaces between columns, cells made
/// printable. If the table does not fit, columns shrink, the last one first; then columns are dropped, and finally
/// lines are cut. With kUnlimitedWidth there is no limit.
std::string to_text(const Table& table, int64_t width);
inline constexpr int64_t kUnlimitedWidth = int64_t{1} << 30;

/// A cell of CSV: made printable, and quoted if it contains a comma or a quote.
std::string csv_cell(std::string_view cell);

/// Titles and rows as CSV (RFC 4180, except that lines end with a line feed alone).
std::string to_csv(const Table& table);

}  // namespace yoke
