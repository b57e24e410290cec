// `yoke curve`: draw the metrics that training runs recorded.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/drawing.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/repetition.h"
#include "yoke/cli/options/value.h"
#include "yoke/curve/chart.h"
#include "yoke/tui/terminal.h"
#include "yoke/view/chart.h"

namespace yoke::cli {
namespace {

using curve::Recording;

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

std::string drawing(const view::Chart& chart, const CurveArgs& args, const Context& context, bool is_ascii) {
  view::ChartTextOptions options{.width = args.width.value_or(output_width(context)), .is_ascii = is_ascii};
  options.is_colored = wants_color(args.repetition.color, context.environment, isatty(STDOUT_FILENO) != 0);
  int64_t num_other_rows = 4;  // rows of the page's title and of the prompt
  for (const auto& panel : chart.panels) num_other_rows += 4 + std::ssize(panel.lines);
  const auto num_panels = std::max<int64_t>(1, std::ssize(chart.panels));
  const auto rows = output_height();
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
    return std::ranges::any_of(recordings, [&](const auto& one) { return curve::find_curve(one, metric) == nullptr; });
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
    if (curve::metrics_of(recordings).empty()) {
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
    std::vector<std::string> notes;
    const auto chart = curve::chart_of({.metrics = args.metrics,
                                        .all = args.json || args.csv,
                                        .x = args.x,
                                        .smoothing = args.smoothing,
                                        .has_log_y = args.log_y},
                                       recordings, notes);
    for (const auto& note : notes) picture.notes += fmt::format("yoke curve: {}\n", note);
    // With --watch, a run that has just begun may get the metric later.
    if (!args.repetition.is_wanted() && lacks_a_metric(args, recordings)) status = exit_status(ErrorCode::kNotFound);
    if (args.json) {
      curve::print_json(chart, context.out);
    } else if (args.csv) {
      curve::print_csv(chart, context.out);
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
  auto& args = add_args<CurveArgs>(cmd, context, run_curve);
  add_value(cmd, "RUN", args.runs, "FILE...",
            "Folder of a run, or its metrics.csv, steps.jsonl or event file; the newest in runs/ unless given")
      ->expected(0, -1);
  add_values(cmd, "--metric", args.metrics, "NAME",
             "What to draw, one below the other; several are separated by commas")
      ->delimiter(',');
  add_value(cmd, "--x", args.x, "step|epoch|time",
            "The axis: steps, epochs, or seconds from the first value; unless given, the first that all have");
  add_value(cmd, "--smooth", args.smoothing, "WEIGHT", "Draw running means as TensorBoard does; near 1 is smoother")
      ->check(in_range(0, 0.999999));
  cmd.add_flag("--log-y", args.log_y, "A logarithmic axis of values");
  add_value(cmd, "--svg", args.svg, "FILE", "Draw into FILE, - for standard output");
  add_value(cmd, "--png", args.png, "FILE", "Draw into FILE, - for standard output");
  add_number(cmd, "--width", args.width, {"N", 20, 20'000},
             "Columns of the terminal, or pixels of the file; 880 for SVG, twice as many for PNG");
  add_number(cmd, "--height", args.height, {"N", 2, 10'000},
             "Rows of each metric's curve, or pixels; 240 for SVG, twice as many for PNG");
  cmd.add_flag("--json", args.json, "Print the values as JSON");
  cmd.add_flag("--csv", args.csv, "Print the values as CSV");
  add_watch_option(cmd, args.repetition);
  cmd.footer(
      examples("  yoke curve                                   the newest run in runs/\n"
               "  yoke curve runs/a runs/b --metric loss       two runs over each other\n"
               "  yoke curve --watch 5 --smooth 0.9            while it trains\n"
               "  yoke curve --log-y --svg loss.svg --png loss.png\n"
               "  yoke curve lightning_logs/version_0          what TensorBoard would show, without it\n"
               "  yoke curve --csv --metric loss | tail -1     the last value"));
}

}  // namespace yoke::cli
