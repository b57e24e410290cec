// `yoke curve`: draw the metrics that training runs recorded.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/spelling.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/drawing.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/repetition.h"
#include "yoke/cli/options/value.h"
#include "yoke/curve/recording.h"
#include "yoke/tui/terminal.h"
#include "yoke/view/chart.h"

namespace yoke::cli {
namespace {

using curve::Curve;
using curve::Recording;

constexpr size_t kMaxChosen = 4;  ///< The number of metrics to draw if the user names none.

struct CurveArgs {
  std::vector<std::string> runs;
  std::vector<std::string> metrics;
  std::string x;
  double smoothing = 0;
  bool log_y = false, json = false, csv = false;
  std::string svg, png;
  std::optional<int64_t> width, height;
  Repetition repetition;

  bool is_for_files() const { return !svg.empty() || !png.empty(); }
};

const Curve* find_curve(const Recording& recording, std::string_view metric) {
  const auto found = std::ranges::find(recording.curves, metric, &Curve::metric);
  return found == recording.curves.end() ? nullptr : &*found;
}

std::vector<std::string> metrics_of(const std::vector<Recording>& recordings) {
  std::vector<std::string> metrics;
  for (const auto& recording : recordings) {
    for (const auto& curve : recording.curves) {
      if (std::ranges::find(metrics, curve.metric) == metrics.end()) metrics.push_back(curve.metric);
    }
  }
  return metrics;
}

std::string short_list(std::vector<std::string> names) {
  constexpr size_t kMaxShown = 12;
  const auto num_more = names.size() - std::min(names.size(), kMaxShown);
  names.resize(names.size() - num_more);
  const auto text = printable(fmt::format("{}", fmt::join(names, ", ")));
  return num_more == 0 ? text : fmt::format("{} and {} more", text, num_more);
}

/// Returns the metrics to draw: those that the user named, or by default the first kMaxChosen (JSON and CSV: all).
std::vector<std::string> chosen_metrics(const CurveArgs& args, const std::vector<Recording>& recordings,
                                        std::string& notes) {
  const auto all = metrics_of(recordings);
  if (args.metrics.empty() && (args.json || args.csv)) return all;
  if (!args.metrics.empty()) {
    for (const auto& metric : args.metrics) {
      std::vector<std::string> without;
      for (const auto& recording : recordings) {
        if (find_curve(recording, metric) == nullptr) without.push_back(recording.run);
      }
      if (without.size() == recordings.size()) {
        throw Error(
            ErrorCode::kNotFound, "{} no metric '{}'{}; there {}",
            without.size() == 1 ? printable(without[0]) + " has" : "these runs have", printable(metric),
            did_you_mean(metric, all),
            all.empty() ? "is none yet" : fmt::format("{} {}", all.size() == 1 ? "is" : "are", short_list(all)));
      }
      if (!without.empty())
        notes += fmt::format("yoke curve: no metric '{}' in {}\n", printable(metric), short_list(without));
    }
    return args.metrics;
  }
  std::vector<std::string> chosen;
  std::ranges::copy_if(all, std::back_inserter(chosen), [](const std::string& metric) {
    return metric != "seconds" && metric != "samples_per_second" && !metric.starts_with("epoch/");
  });
  if (chosen.empty()) chosen = all;
  if (chosen.size() > kMaxChosen) {
    const std::vector<std::string> others(chosen.begin() + kMaxChosen, chosen.end());
    chosen.resize(kMaxChosen);
    notes += fmt::format("yoke curve: not drawn, choose with --metric: {}\n", short_list(others));
  }
  return chosen;
}

const std::vector<double>& places(const Curve& curve, std::string_view x) {
  return x == curve::kEpoch ? curve.epochs : x == curve::kTime ? curve.times : curve.steps;
}

/// Returns the x axis: the one that the user chose, or the first of step, epoch and time that all curves have.
std::string chosen_x(const CurveArgs& args, const std::vector<Recording>& recordings, const std::string& metric) {
  std::string missing;
  for (const auto x : args.x.empty() ? std::vector<std::string_view>{curve::kStep, curve::kEpoch, curve::kTime}
                                     : std::vector<std::string_view>{args.x}) {
    missing.clear();
    for (const auto& recording : recordings) {
      const auto* curve = find_curve(recording, metric);
      if (curve != nullptr && places(*curve, x).empty()) missing = fmt::format("{} has no {}s", recording.run, x);
    }
    if (missing.empty()) return std::string(x);
  }
  if (!args.x.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the metric '{}' of {}; give another --x, or other metrics with --metric",
                printable(metric), printable(missing));
  }
  throw Error(ErrorCode::kInvalidArgument,
              "the runs have no common axis for the metric '{}': one has only steps and another only epochs; draw them "
              "apart, or choose other metrics with --metric",
              printable(metric));
}

/// Returns what to subtract from times: the run's first time if they are clock times, 0 if they are sums of durations.
double time_origin(const Recording& recording) {
  constexpr double kYear = 3e7;
  double origin = HUGE_VAL;
  for (const auto& curve : recording.curves) {
    for (const double time : curve.times) {
      if (time > kYear) origin = std::min(origin, time);
    }
  }
  return std::isfinite(origin) ? origin : 0;
}

std::vector<view::ChartPoint> points_of(const Curve& curve, std::string_view x, double origin, double smoothing) {
  const auto& all = places(curve, x);
  if (!all.empty() && all.front() < origin) origin = 0;
  std::vector<view::ChartPoint> points;
  points.reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isfinite(all[i])) points.push_back({all[i] - origin, curve.values[i]});
  }
  // If two processes wrote at once, the points may be out of order.
  if (!std::ranges::is_sorted(points, {}, &view::ChartPoint::x))
    std::ranges::stable_sort(points, {}, &view::ChartPoint::x);
  if (smoothing > 0) view::smooth(points, smoothing);
  return points;
}

/// Returns names that tell the runs apart: the last parts of their paths, or whole paths if two last parts are equal.
std::vector<std::string> names_of(const std::vector<Recording>& recordings) {
  std::vector<std::string> names;
  std::set<std::string> different;
  for (const auto& recording : recordings) {
    std::string_view path = recording.run;
    while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    names.emplace_back(base_name(path));
    different.insert(names.back());
  }
  if (different.size() == names.size()) return names;
  std::ranges::transform(recordings, names.begin(), &Recording::run);
  return names;
}

view::Chart chart_of(const CurveArgs& args, const std::vector<Recording>& recordings, std::string& notes) {
  const auto metrics = chosen_metrics(args, recordings, notes);
  const auto names = names_of(recordings);
  view::Chart chart{.has_log_y = args.log_y, .panels = {}};
  for (const auto& metric : metrics) {
    const auto x = chosen_x(args, recordings, metric);
    view::ChartPanel panel{.title = metric, .x_title = x, .x_is_time = x == curve::kTime, .lines = {}};
    for (size_t i = 0; i < recordings.size(); ++i) {
      const auto* curve = find_curve(recordings[i], metric);
      if (curve == nullptr) continue;
      const double origin = panel.x_is_time ? time_origin(recordings[i]) : 0;
      panel.lines.push_back({names[i], points_of(*curve, x, origin, args.smoothing)});
    }
    chart.panels.push_back(std::move(panel));
  }
  return chart;
}

// CSV and JSON contain every value, so they are written without first building a tree or a table in memory.

std::string json_text(std::string_view text) { return json_line(nlohmann::json(text)); }

void print_curves_json(const view::Chart& chart, std::ostream& out) {
  out << "{\"curves\": [";
  const char* before = "\n";
  for (const auto& panel : chart.panels) {
    for (const auto& line : panel.lines) {
      out << before
          << fmt::format("{{\"metric\": {}, \"run\": {}, \"x\": {}, \"points\": [", json_text(panel.title),
                         json_text(line.name), json_text(panel.x_title));
      const char* comma = "";
      for (const auto& [x, y] : line.points) {
        out << comma << (std::isfinite(y) ? fmt::format("[{}, {}]", x, y) : fmt::format("[{}, null]", x));
        comma = ", ";
      }
      out << "]}";
      before = ",\n";
    }
  }
  out << "\n]}\n";
}

void print_curves_csv(const view::Chart& chart, std::ostream& out) {
  out << "metric,run,axis,x,value\n";
  for (const auto& panel : chart.panels) {
    for (const auto& line : panel.lines) {
      const auto row =
          yoke::to_csv({.columns = {{"metric"}, {"run"}, {"axis"}}, .rows = {{panel.title, line.name, panel.x_title}}});
      const auto begin = row.find('\n') + 1;
      const auto names = row.substr(begin, row.size() - begin - 1);
      for (const auto& [x, y] : line.points) out << names << fmt::format(",{},{}\n", x, y);
    }
  }
}

/// The height of the terminal at standard output, in rows; 0 if standard output is not a terminal.
int64_t terminal_rows() {
  winsize size{};
  return isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

std::string drawing(const view::Chart& chart, const CurveArgs& args, const Context& context, bool is_ascii) {
  view::ChartTextOptions options{.width = args.width.value_or(output_width(context)), .is_ascii = is_ascii};
  options.is_colored = wants_color(args.repetition.color, context.environment, isatty(STDOUT_FILENO) != 0);
  int64_t num_other_rows = 4;  // rows of the page's title and of the prompt
  for (const auto& panel : chart.panels) num_other_rows += 4 + std::ssize(panel.lines);
  const auto num_panels = std::max<int64_t>(1, std::ssize(chart.panels));
  const auto rows = terminal_rows();
  options.height = rows == 0 ? 16 : std::clamp<int64_t>((rows - num_other_rows) / num_panels, 5, 24);
  options.height = args.height.value_or(options.height);
  return chart_text(chart, options);
}

void write_files(const view::Chart& chart, const CurveArgs& args, Context& context) {
  const auto size = [&](double scale) {  // a unit of length is one pixel of an SVG, and two pixels of a PNG
    view::ChartSize result;
    if (args.width) result.width = static_cast<double>(*args.width) / scale;
    if (args.height) result.height = static_cast<double>(*args.height) / scale;
    return result;
  };
  const auto write = [&](const std::string& file, const std::string& content, Drawing kind) {
    if (file != "-") return write_drawing(file, content, kind);
    context.out << content;
  };
  if (!args.svg.empty()) write(args.svg, view::chart_svg(chart, size(1)), Drawing::kSvg);
  if (!args.png.empty()) write(args.png, view::chart_png(chart, size(2)), Drawing::kPng);
}

void check_args(const CurveArgs& args) {
  const auto refuse = [](const char* why) { throw Error(ErrorCode::kInvalidArgument, "{}", why); };
  if (args.json && args.csv) refuse("--json and --csv are two formats; give one of them");
  if (args.is_for_files() && (args.json || args.csv))
    refuse("--svg and --png draw, and --json and --csv do not; give one kind");
  if (!args.svg.empty() && args.svg == args.png) refuse("--svg and --png name one file; give two");
  if (args.is_for_files() && args.width && *args.width < 200)
    refuse("--width of a file is in pixels; give 200 or more");
  if (args.repetition.is_wanted() && (args.json || args.csv))
    refuse("--watch repeats a drawing; --json and --csv print all values at once");
}

std::vector<Recording> read_runs(const CurveArgs& args, std::string& notes) {
  std::vector<Recording> recordings;
  auto runs = args.runs;
  if (runs.empty()) runs.push_back(curve::newest_run("runs").string());
  for (const auto& run : runs) {
    recordings.push_back(curve::read_run(run));
    for (const auto& note : recordings.back().notes) notes += fmt::format("yoke curve: {}\n", note);
  }
  return recordings;
}

/// Whether some run lacks a metric that the user named.
bool lacks_a_metric(const CurveArgs& args, const std::vector<Recording>& recordings) {
  return std::ranges::any_of(args.metrics, [&](const std::string& metric) {
    return std::ranges::any_of(recordings, [&](const auto& one) { return find_curve(one, metric) == nullptr; });
  });
}

int run_curve(const CurveArgs& args, Context& context) {
  check_args(args);
  int status = kExitOk;
  const bool is_ascii = tui::prepare_locale(context.environment) == tui::Glyphs::kAscii;
  const auto kind = args.json || args.csv ? PictureKind::kRecords : PictureKind::kDrawing;
  repeat(args.repetition, kind, context, [&](int64_t /*number*/) {
    Picture picture{.time = std::chrono::system_clock::now(), .host = "yoke curve", .text = "", .notes = ""};
    const auto recordings = read_runs(args, picture.notes);
    if (metrics_of(recordings).empty()) {
      // With --watch this is not an error, because a run that has just begun may get values later.
      const auto text = fmt::format("{} no values yet",
                                    recordings.size() == 1 ? printable(recordings[0].run) + " has" : "these runs have");
      if (!args.repetition.is_wanted()) {
        std::cerr << picture.notes;
        throw Error(ErrorCode::kNotFound,
                    "{}: yoke curve reads CSV with a header of names, JSON lines and TensorBoard's event files; if a "
                    "training has "
                    "just begun, --watch waits for its first values",
                    text);
      }
      picture.text = text + "\n";
      return picture;
    }
    const auto chart = chart_of(args, recordings, picture.notes);
    // With --watch, a run that has just begun may get the metric later.
    if (!args.repetition.is_wanted() && lacks_a_metric(args, recordings)) status = exit_status(ErrorCode::kNotFound);
    if (args.json) {
      print_curves_json(chart, context.out);
    } else if (args.csv) {
      print_curves_csv(chart, context.out);
    } else if (args.is_for_files()) {
      write_files(chart, args, context);
    } else {
      picture.text = drawing(chart, args, context, is_ascii);
    }
    return picture;
  });
  return status;
}

}  // namespace

void add_curve(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<CurveArgs>();  // CLI11 keeps references to *args; the callback owns it
  cmd.add_option("RUN", args->runs,
                 "Folder of a run, or its metrics.csv, steps.jsonl or event file; the newest in runs/ unless given")
      ->type_name("FILE...")
      ->expected(0, -1);
  cmd.add_option("--metric", args->metrics, "What to draw, one below the other; several are separated by commas")
      ->type_name("NAME")
      ->delimiter(',')
      ->expected(1)
      ->take_all();
  cmd.add_option("--x", args->x,
                 "The axis: steps, epochs, or seconds from the first value; unless given, the first that all have")
      ->type_name("step|epoch|time");
  cmd.add_option("--smooth", args->smoothing, "Draw running means as TensorBoard does; near 1 is smoother")
      ->type_name("WEIGHT")
      ->check(in_range(0, 0.999999));
  cmd.add_flag("--log-y", args->log_y, "A logarithmic axis of values");
  cmd.add_option("--svg", args->svg, "Draw into FILE, - for standard output")->type_name("FILE");
  cmd.add_option("--png", args->png, "Draw into FILE, - for standard output")->type_name("FILE");
  add_number(cmd, "--width", args->width, {"N", 20, 20'000},
             "Columns of the terminal, or pixels of the file; 880 for SVG, twice as many for PNG");
  add_number(cmd, "--height", args->height, {"N", 2, 10'000},
             "Rows of each metric's curve, or pixels; 240 for SVG, twice as many for PNG");
  cmd.add_flag("--json", args->json, "Print the values as JSON");
  cmd.add_flag("--csv", args->csv, "Print the values as CSV");
  add_watch_option(cmd, args->repetition);
  cmd.footer(
      examples("  yoke curve                                   the newest run in runs/\n"
               "  yoke curve runs/a runs/b --metric loss       two runs over each other\n"
               "  yoke curve --watch 5 --smooth 0.9            while it trains\n"
               "  yoke curve --log-y --svg loss.svg --png loss.png\n"
               "  yoke curve lightning_logs/version_0          what TensorBoard would show, without it\n"
               "  yoke curve --csv --metric loss | tail -1     the last value"));
  cmd.callback([args, &context] { context.exit_code = run_curve(*args, context); });
}

}  // namespace yoke::cli
