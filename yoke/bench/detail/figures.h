// yoke/bench/detail/figures.h -- reads the rows of JSON results, and formats numbers for sentences. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/json.h"
#include "yoke/bench/report.h"

namespace yoke::bench {

using Rows = std::vector<Json>;

Report report_matmul(const Json& measured);
Report report_sync(const Json& measured);
Report report_two_devices(const Json& measured);
Report report_copies(const Json& measured);
Report report_all_reduce(const Json& measured);
Report report_batch(const Json& measured);
Report report_precision(const Json& measured);
Report report_loader(const Json& measured);

double number(const Json& row, const char* member);
std::string text(const Json& row, const char* member);

/// Rows with equal texts in the grouping members, such as `device`. Series are in the order of their first rows.
struct Series {
  std::vector<std::string> names;  ///< The texts of the grouping members.
  Rows rows;
};
std::vector<Series> series_of(const Json& results, const std::vector<const char*>& members);

/// Returns the index of the first row from which on `condition` holds for all rows; nullopt if the last row fails it.
std::optional<size_t> lasting_from(const Rows& rows, const std::function<bool(const Json& row)>& condition);

/// Returns the row with the largest value of `member`. REQUIRES: `rows` is not empty.
const Json& row_with_most(const Rows& rows, const char* member);

/// Returns the first of the consecutive rows before the row with the largest `member` that reach kNearly of its value.
const Json& first_near_most(const Rows& rows, const char* member);
inline constexpr double kNearly = 0.9;

/// Formats a number with three digits and without an exponent: "0.0123", "12.3", "1230".
std::string shown(double value);
/// "1.80 times"
std::string times(double factor);
/// Formats a time in a suitable unit: "12.3 us", "4.56 ms", "1.20 s".
std::string duration(double milliseconds);
/// "64x64"
std::string matrix(const Json& row);

/// Judges the row's `speedup`: kEqual if it is near 1, or if 1 lies between `speedup_p10` and `speedup_p90`.
enum class Outcome { kFaster, kEqual, kSlower };
Outcome outcome_of(const Json& row);

/// Whether the spreads of two times overlap, so that the difference of their medians may be accidental.
bool overlap(const Json& one, const Json& other, const std::string& name);

/// Two times count as equal if their ratio differs from 1 by at most this.
inline constexpr double kNoticed = 0.05;

/// Returns `first`, then three columns for each of the times: the median under its title, p10 and p90; then `last`.
std::vector<Column> timed_columns(std::vector<Column> first, std::initializer_list<const char*> titles,
                                  const std::vector<Column>& last);
/// Returns the cells of these columns. Each of `times` is a NAME: `row` has NAME_ms (the median), NAME_p10_ms and
/// NAME_p90_ms.
std::vector<std::string> timed_cells(std::vector<std::string> first, const Json& row,
                                     std::initializer_list<const char*> times, const std::vector<std::string>& last);

view::ChartLine line_of(const std::string& name, const Rows& rows, const char* x, const char* y);

}  // namespace yoke::bench
