// Reports of the exercises about matrix products: matmul, sync and two-devices.
#include <fmt/format.h>

#include <cmath>

#include "yoke/base/error.h"
#include "yoke/bench/detail/figures.h"

namespace yoke::bench {
namespace {

/// "the CPU in float32"
std::string place_of(const Series& series) {
  return fmt::format("{} in {}", series.names[0] == "cpu" ? "the CPU" : series.names[0], series.names[1]);
}

std::string sentence_of(const Series& series) {
  const auto& best = row_with_most(series.rows, "gflops");
  const double most = number(best, "gflops");
  if (series.rows.size() == 1) {
    return fmt::format("On {}, a product of {} matrices reaches {} GFLOP/s.", place_of(series), matrix(best),
                       shown(most));
  }
  auto sentence = fmt::format("On {}, products of {} matrices are the fastest, at {} GFLOP/s", place_of(series),
                              matrix(best), shown(most));
  const auto &near = first_near_most(series.rows, "gflops"), &smallest = series.rows.front();
  if (near != best) sentence += fmt::format(", and from {} on they reach at least 90 % of that", matrix(near));
  sentence += ".";
  const double share = number(smallest, "gflops") / most;
  if (share < kNearly) sentence += fmt::format(" Those of {} reach only {} %.", matrix(smallest), shown(100 * share));
  return sentence;
}

const Json* row_of_size(const Series& series, double size) {
  for (const auto& row : series.rows) {
    if (number(row, "size") == size) return &row;
  }
  return nullptr;
}

/// Returns a sentence that compares a series with the first one, at the sizes that both have.
std::string comparison(const Series& first, const Series& other) {
  Rows common;
  for (const auto& row : other.rows) {
    const auto* reference = row_of_size(first, number(row, "size"));
    if (reference == nullptr) continue;
    common.push_back(row);
    common.back()["ratio"] = number(*reference, "time_ms") / number(row, "time_ms");
  }
  if (common.empty()) return "";
  const double ratio = number(common.back(), "ratio");
  const auto begin = fmt::format(" At {}, {} is", matrix(common.back()), place_of(other));
  if (ratio < 1 - kNoticed) {
    const auto& best = row_with_most(common, "ratio");
    const auto where = number(best, "ratio") > 1 + kNoticed
                           ? fmt::format("; it is faster at {}, {}", matrix(best), times(number(best, "ratio")))
                           : "";
    return fmt::format("{} slower than {} and takes {} as long{}.", begin, place_of(first), times(1 / ratio), where);
  }
  if (ratio <= 1 + kNoticed) return fmt::format("{} as fast as {}.", begin, place_of(first));
  const auto faster = [](const Json& row) { return number(row, "ratio") > 1 + kNoticed; };
  const auto from = lasting_from(common, faster).value_or(0);
  const auto where = from == 0 ? "" : fmt::format("; up to {} it is not", matrix(common[from - 1]));
  return fmt::format("{} {} as fast as {}{}.", begin, times(ratio), place_of(first), where);
}

/// Says in words after which products the exercise reads a result.
std::string way_name(const std::string& way) {
  return way == "each" ? "read after each product" : way == "end" ? "kept on the device, read at the end" : "no log";
}

std::string sync_sentence(const Series& each, const Series& end, const Series& none, bool is_gpu) {
  const auto &one = each.rows.back(), &kept = end.rows.back();
  const double ratio = number(one, "time_ms") / number(kept, "time_ms");
  const auto figures = fmt::format("{:.0f} products of 100x100: {} against {}, and {} without a log",
                                   number(one, "num_products"), duration(number(one, "time_ms")),
                                   duration(number(kept, "time_ms")), duration(number(none.rows.back(), "time_ms")));
  const bool is_noticed = std::fabs(ratio - 1) > kNoticed;
  if (is_noticed && overlap(one, kept, "time")) {
    return fmt::format(
        "Whether the norm is read after each product or at the end makes no difference that these rounds show, "
        "because their times spread more than they differ ({}).",
        figures);
  }
  if (is_noticed && ratio > 1) {
    return fmt::format(
        "Reading the norm after each product takes {} as long as a log that stays on the device until the end ({}){}.",
        times(ratio), figures, is_gpu ? ": each reading waits until the device has nothing left to do" : "");
  }
  if (!is_noticed) {
    return fmt::format("Reading the norm after each product costs as much as a log that is read at the end ({}){}.",
                       figures, is_gpu ? "" : ": a CPU computes while it is called, so no reading has to wait");
  }
  return fmt::format("A log that is read at the end takes {} as long as reading the norm after each product ({}){}.",
                     times(1 / ratio), figures,
                     is_gpu ? "" : ": a CPU has no queue to keep full, and writing the log is one more operation");
}

}  // namespace

Report report_matmul(const Json& measured) {
  Report report;
  report.table.columns =
      timed_columns({{"device"}, {"dtype"}, {"size", Align::kRight}}, {"time"}, {{"GFLOP/s", Align::kRight}});
  view::ChartPanel panel{.title = "GFLOP/s", .x_title = "size", .x_is_log = true};
  const auto all = series_of(measured.at("results"), {"device", "dtype"});
  for (const auto& series : all) {
    for (const auto& row : series.rows) {
      report.table.rows.push_back(
          timed_cells({series.names[0], series.names[1], matrix(row)}, row, {"time"}, {shown(number(row, "gflops"))}));
    }
    panel.lines.push_back(
        line_of(fmt::format("{} {}", series.names[0], series.names[1]), series.rows, "size", "gflops"));
    report.sentence += &series == &all.front() ? sentence_of(series) : comparison(all.front(), series);
  }
  report.chart = {.has_log_y = true, .panels = {std::move(panel)}};
  return report;
}

Report report_sync(const Json& measured) {
  Report report;
  report.table.columns =
      timed_columns({{"log"}, {"products", Align::kRight}}, {"time"}, {{"a product", Align::kRight}});
  view::ChartPanel panel{.title = "milliseconds", .x_title = "products"};
  const Series *each = nullptr, *end = nullptr, *none = nullptr;
  const auto all = series_of(measured.at("results"), {"log"});
  for (const auto& series : all) {
    const auto& way = series.names[0];
    (way == "each" ? each : way == "end" ? end : none) = &series;
    for (const auto& row : series.rows) {
      const double count = number(row, "num_products");
      report.table.rows.push_back(timed_cells({way_name(way), fmt::format("{:.0f}", count)}, row, {"time"},
                                              {duration(number(row, "time_ms") / count)}));
    }
    panel.lines.push_back(line_of(way_name(way), series.rows, "num_products", "time_ms"));
  }
  if (each == nullptr || end == nullptr || none == nullptr) {
    throw Error(ErrorCode::kDataLoss, "the figures of sync lack a kind of log; they need `each`, `end` and `none`");
  }
  report.sentence = sync_sentence(*each, *end, *none, text(measured, "device") != "cpu");
  report.chart = {.panels = {std::move(panel)}};
  return report;
}

Report report_two_devices(const Json& measured) {
  Report report;
  report.table.columns =
      timed_columns({{"size", Align::kRight}}, {"in sequence", "at once"}, {{"times as fast", Align::kRight}});
  const Rows rows(measured.at("results").begin(), measured.at("results").end());
  for (const auto& row : rows) {
    report.table.rows.push_back(
        timed_cells({matrix(row)}, row, {"in_sequence", "at_once"}, {shown(number(row, "speedup"))}));
  }
  const auto& last = rows.back();
  const double speedup = number(last, "speedup");
  const auto places =
      fmt::format("{} and {}", text(measured.at("devices"), "first"), text(measured.at("devices"), "second"));
  const auto pays = [](const Json& row) { return outcome_of(row) == Outcome::kFaster; };
  const auto from = lasting_from(rows, pays);
  if (from) {
    report.sentence = fmt::format(
        "Two products of {} matrices, on {}, are {} as fast at once as one after the other; 2 would be the "
        "most on equal devices.",
        matrix(last), places, times(speedup));
    if (*from > 0) {
      report.sentence += fmt::format(" Up to {}, starting both costs as much as it gains.", matrix(rows[*from - 1]));
    }
  } else {
    const bool is_uncertain = outcome_of(last) == Outcome::kEqual && std::abs(speedup - 1) > kNoticed;
    report.sentence =
        fmt::format("Two products of {} matrices, on {}, {}: at once they are {} as fast as one after the other.",
                    matrix(last), places,
                    outcome_of(last) == Outcome::kSlower ? "hinder each other"
                    : is_uncertain                       ? "do not gain in all rounds"
                                                         : "gain nothing",
                    times(speedup));
    if (is_uncertain) {
      report.sentence += fmt::format(" The rounds disagree (from {} to {}): the machine has other work.",
                                     shown(number(last, "speedup_p10")), shown(number(last, "speedup_p90")));
    }
  }
  report.chart = {.panels = {{.title = "times as fast at once",
                              .x_title = "size",
                              .x_is_log = true,
                              .lines = {line_of(places, rows, "size", "speedup")}}}};
  return report;
}

}  // namespace yoke::bench
