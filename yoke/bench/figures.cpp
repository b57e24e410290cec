#include "yoke/bench/detail/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "yoke/base/error.h"

namespace yoke::bench {
namespace {

constexpr auto kExercises = std::to_array<Exercise>({
    {"matmul", "Large and small matrix products on the CPU and on each GPU", "sizes dtype", report_matmul},
    {"sync", "Reading a number after each of 1,000 products, or at the end", "", report_sync},
    {"two-devices", "Two products on two devices at once, or one after the other", "sizes", report_two_devices},
    {"copies", "Copies between host and devices, with pinned memory and without", "sizes", report_copies},
    {"all-reduce", "Sums over ranks by size, with algorithm and bus bandwidth", "sizes n", report_all_reduce},
    {"batch", "The time of a training step against the batch size", "batch-size model", report_batch},
    {"precision", "Mixed precision against float32, and where it loses", "batch-size model", report_precision},
    {"loader", "What loading costs a training, and how many workers would hide it", "batch-size model data workers",
     report_loader},
});

}  // namespace

std::span<const Exercise> exercises() { return kExercises; }

const Exercise* find_exercise(std::string_view name) {
  const auto* found = std::ranges::find(kExercises, name, &Exercise::name);
  return found == kExercises.end() ? nullptr : found;
}

double number(const Json& row, const char* member) { return row.at(member).get<double>(); }

std::string text(const Json& row, const char* member) { return row.at(member).get<std::string>(); }

std::vector<Series> series_of(const Json& results, const std::vector<const char*>& members) {
  std::vector<Series> all;
  for (const auto& row : results) {
    std::vector<std::string> names;
    for (const auto* member : members) names.push_back(text(row, member));
    auto found = std::ranges::find(all, names, &Series::names);
    if (found == all.end()) found = all.insert(all.end(), {names, {}});
    found->rows.push_back(row);
  }
  return all;
}

std::optional<size_t> lasting_from(const Rows& rows, const std::function<bool(const Json& row)>& condition) {
  size_t first = rows.size();
  while (first > 0 && condition(rows[first - 1])) --first;
  return first == rows.size() ? std::nullopt : std::optional(first);
}

const Json& row_with_most(const Rows& rows, const char* member) {
  return *std::ranges::max_element(rows, {}, [&](const Json& row) { return number(row, member); });
}

const Json& first_near_most(const Rows& rows, const char* member) {
  const auto* row = &row_with_most(rows, member);
  const double least = kNearly * number(*row, member);
  while (row != &rows.front() && number(*(row - 1), member) >= least) --row;
  return *row;
}

std::string shown(double value) {
  if (!std::isfinite(value)) return "?";
  const double size = std::fabs(value);
  if (size == 0) return "0";
  const int digits_before_point = static_cast<int>(std::floor(std::log10(size))) + 1;
  return fmt::format("{:.{}f}", value, std::clamp(3 - digits_before_point, 0, 9));
}

std::string times(double factor) { return shown(factor) + " times"; }

std::string duration(double milliseconds) {
  if (milliseconds < 1) return shown(milliseconds * 1e3) + " us";
  return milliseconds < 1000 ? shown(milliseconds) + " ms" : shown(milliseconds / 1e3) + " s";
}

std::string matrix(const Json& row) { return fmt::format("{0:.0f}x{0:.0f}", number(row, "size")); }

Outcome outcome_of(const Json& row) {
  const double speedup = number(row, "speedup");
  if (speedup > 1 + kNoticed && number(row, "speedup_p10") > 1) return Outcome::kFaster;
  if (speedup < 1 - kNoticed && number(row, "speedup_p90") < 1) return Outcome::kSlower;
  return Outcome::kEqual;
}

bool overlap(const Json& one, const Json& other, const std::string& name) {
  const auto low = name + "_p10_ms", high = name + "_p90_ms";
  return number(one, low.c_str()) <= number(other, high.c_str()) &&
         number(other, low.c_str()) <= number(one, high.c_str());
}

std::vector<Column> timed_columns(std::vector<Column> columns, std::initializer_list<const char*> titles,
                                  const std::vector<Column>& last) {
  int64_t drop_order = 0;
  for (const auto* title : titles) {
    columns.push_back({title, Align::kRight});
    for (const auto* quantile : {"p10", "p90"}) columns.push_back({quantile, Align::kRight, 0, ++drop_order});
  }
  columns.insert(columns.end(), last.begin(), last.end());
  return columns;
}

std::vector<std::string> timed_cells(std::vector<std::string> cells, const Json& row,
                                     std::initializer_list<const char*> times, const std::vector<std::string>& last) {
  for (const std::string name : times) {
    for (const auto* member : {"_ms", "_p10_ms", "_p90_ms"}) {
      cells.push_back(duration(number(row, (name + member).c_str())));
    }
  }
  cells.insert(cells.end(), last.begin(), last.end());
  return cells;
}

view::ChartLine line_of(const std::string& name, const Rows& rows, const char* x, const char* y) {
  view::ChartLine line{.name = name};
  for (const auto& row : rows) line.points.push_back({number(row, x), number(row, y)});
  std::ranges::stable_sort(line.points, {}, &view::ChartPoint::x);
  return line;
}

Report report(const Json& measured) {
  try {
    const auto name = text(measured, "name");
    const auto* const exercise = find_exercise(name);
    if (exercise == nullptr) throw Error(ErrorCode::kDataLoss, "there is no exercise '{}'", name);
    if (measured.at("results").empty()) throw Error(ErrorCode::kDataLoss, "the figures of {} have no results", name);
    return exercise->report(measured);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kDataLoss, "the figures are not those of yoke-bench: {}", error.what());
  }
}

}  // namespace yoke::bench
