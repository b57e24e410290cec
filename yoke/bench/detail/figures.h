// yoke/bench/detail/figures.h -- reads the rows of results, and words numbers. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/bench/report.h"

namespace yoke::bench {

using Json = nlohmann::ordered_json;
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

/// Rows that have equal texts in some members, in the order of the first row of each series.
struct Series {
  std::vector<std::string> names;  ///< The texts of those members.
  Rows rows;
};
std::vector<Series> series_of(const Json& results, const std::vector<const char*>& members);

/// The number of the first row from which on `condition` holds for all rows; nullopt if it does not hold for the last.
std::optional<size_t> lasting_from(const Rows& rows, const std::function<bool(const Json& row)>& condition);

/// The row with the largest `member`. REQUIRES: there is a row.
const Json& row_with_most(const Rows& rows, const char* member);

/// The row from which on, up to the row with the largest `member`, all rows have nearly that value.
const Json& first_near_most(const Rows& rows, const char* member);
inline constexpr double kNearly = 0.9;

/// Three digits without an exponent: "0.0123", "12.3", "1230".
std::string shown(double value);
/// "1.80 times"
std::string times(double factor);
/// A time in the unit that suits it: "12.3 us", "4.56 ms", "1.20 s".
std::string duration(double milliseconds);
/// "64x64"
std::string matrix(const Json& row);

/// What a ratio of times says, in view of its spread over the rounds: members `speedup`, `speedup_p10`, `speedup_p90`.
enum class Outcome { kFaster, kEqual, kSlower };
Outcome outcome_of(const Json& row);

/// Whether the spreads of two times overlap, so that their medians differ by accident, perhaps.
bool overlap(const Json& one, const Json& other, const std::string& name);

/// Two times whose ratio is nearer to 1 than this are called equal.
inline constexpr double kNoticed = 0.05;

/// The columns of a spread: "median", "p10" and "p90" of the member `NAME_ms`.
std::vector<std::string> spread_cells(const Json& row, const std::string& name);

view::ChartLine line_of(const std::string& name, const Rows& rows, const char* x, const char* y);

}  // namespace yoke::bench
