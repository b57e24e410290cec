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
  /// Narrower than this it may not become when the table does not fit; 0: it keeps its width.
  int64_t shrinks_to = 0;
  int64_t drop_order = 0;     ///< Where shrinking is not enough, 1 is left out first, then 2...; 0 stays.
  bool shrinks_late = false;  ///< Not before all that can be left out is.
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  ///< Each with one cell a column; cells may hold anything.
};

/// Lines of at most `width` columns, titles first, two spaces between columns, each made printable. Where it does not
/// fit, columns that may shrink do, the last one first; then columns are left out, and at last lines are cut. Without a
/// limit: kUnlimitedWidth.
std::string to_text(const Table& table, int64_t width);
inline constexpr int64_t kUnlimitedWidth = int64_t{1} << 30;

/// Titles, then rows, as RFC 4180 has them but for the line feed alone; cells are made printable, and quoted when they
/// hold a comma or a quote.
std::string to_csv(const Table& table);

}  // namespace yoke
