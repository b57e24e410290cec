// `yoke tune batch`: runs a program with different batch sizes, and tells which one is the fastest.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/base/process.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/progress_line.h"
#include "yoke/cli/options/value.h"
#include "yoke/contract/variables.h"
#include "yoke/tui/terminal.h"
#include "yoke/tune/tuner.h"
#include "yoke/view/chart.h"

namespace yoke::cli {
namespace {

struct TuneArgs {
  std::string variable, option;
  tune::SearchOptions search;
  double margin_percent = 10, tolerance_percent = 2;
  bool is_global = false, has_per_rank = false;
  std::optional<int64_t> memory_mib;
  double seconds = 5, timeout_s = 300;
  std::optional<int64_t> soak;
  std::optional<double> soak_s;
  bool json = false, prints_number = false, shows_output = false;
};

constexpr int64_t kDefaultSoak = 200;
constexpr double kDefaultSoakSeconds = 60;

void check_args(const TuneArgs& args, const Context& context) {
  if (context.words.size() < 2 || context.words[1] != "batch") refuse("say what to tune: `yoke tune batch -- PROGRAM`");
  if (context.rest.empty()) refuse("give a program, as in `yoke tune batch -- python train.py`");
  if (args.search.min > args.search.max) refuse("--min {} is above --max {}", args.search.min, args.search.max);
  if (args.search.max / args.search.multiple_of * args.search.multiple_of < args.search.min) {
    refuse("no multiple of {} lies between --min {} and --max {}", args.search.multiple_of, args.search.min,
           args.search.max);
  }
  const auto num_ways =
      (args.variable.empty() ? 0 : 1) + (args.option.empty() ? 0 : 1) + (tune::has_placeholder(context.rest) ? 1 : 0);
  if (num_ways > 1) {
    refuse("--variable, --option and {{}} are three ways to tell the program its batch size; use one of them");
  }
  if (args.option == "--") refuse("--option: the name of the program's option is missing, such as --batch-size");
  if (args.variable.find('=') != std::string::npos) {
    refuse("--variable {}: give the name of a variable, without a value", printable(args.variable));
  }
  if (args.search.num_samples && *args.search.num_samples < args.search.min) {
    refuse("--dataset-size {} is less than --min {}", *args.search.num_samples, args.search.min);
  }
  if (args.is_global && args.has_per_rank) refuse("--global and --per-rank exclude each other");
  if (args.json && args.prints_number) refuse("--json and --print are two formats; give one of them");
}

/// The throughput of each batch size.
std::string throughput_chart(const tune::Report& report, const Context& context, bool is_ascii) {
  std::map<double, double> best;
  for (const auto& run : report.measurements) {
    if (run.outcome != tune::Outcome::kOk || run.has_worst_case) continue;
    auto& rate = best[static_cast<double>(run.batch)];
    rate = std::max(rate, tune::samples_per_second(run, report.options.is_per_rank));
  }
  if (best.size() < 3) return "";
  view::ChartPanel panel{.title = "samples/s", .x_title = "batch size", .lines = {{"measured", {}}}};
  for (const auto& [batch, rate] : best) panel.lines[0].points.push_back({batch, rate});
  return "\n" + view::chart_text({.panels = {panel}}, {.width = std::min<int64_t>(output_width(context), 80),
                                                       .height = 8,
                                                       .is_ascii = is_ascii,
                                                       .is_colored = wants_color(ColorMode::kAuto, context.environment,
                                                                                 isatty(STDOUT_FILENO) != 0)});
}

void print_report(const tune::Report& report, const TuneArgs& args, Context& context) {
  for (const auto& warning : report.answer.warnings) std::cerr << "yoke tune: warning: " << warning << std::endl;
  if (args.prints_number) {
    context.out << report.answer.chosen->batch << '\n';
    return;
  }
  const bool is_ascii = tui::prepare_locale(context.environment) == tui::Glyphs::kAscii;
  context.out << tune::to_table(report, output_width(context)) << throughput_chart(report, context, is_ascii) << '\n'
              << tune::to_text(report);
}

tune::TunerOptions options_of(const TuneArgs& args, const Context& context) {
  auto search = args.search;
  search.margin = args.margin_percent / 100;
  search.tolerance = args.tolerance_percent / 100;
  search.is_per_rank = !args.is_global;
  return {.argv = context.rest,
          .environment = with_python_hooks(context.environment, context.installation),
          .handover = {.variable = args.variable, .option = args.option},
          .search = search,
          .host_bytes = args.memory_mib ? std::optional(*args.memory_mib << 20) : std::nullopt,
          .seconds = args.seconds,
          .timeout_s = args.timeout_s,
          .soak_steps = args.soak.value_or(kDefaultSoak),
          .soak_seconds = args.soak_s.value_or(args.soak ? HUGE_VAL : kDefaultSoakSeconds),
          .copy_to = args.shows_output ? STDERR_FILENO : kNullStream};
}

int tune_batch(const TuneArgs& args, Context& context) {
  ProgressLine progress(context.environment);
  auto options = options_of(args, context);
  options.on_progress = progress.teller();
  options.on_measured = [&](const tune::Measurement& run, const tune::SearchOptions& search) {
    progress.clear();
    std::cerr << fmt::format("batch size {}: {}\n", run.batch, to_line(run, search)) << std::flush;
  };
  tune::Tuner tuner(std::move(options));
  const auto report = tuner.tune();
  progress.clear();
  if (!report) {
    tune::Report so_far{tuner.search(), tuner.measurements(), {}, std::nullopt};
    if (!so_far.measurements.empty()) {
      std::cerr << "\nyoke tune: interrupted; measured until then:\n" << tune::to_table(so_far, 100);
    }
    return 128 + tuner.interruption();
  }
  if (args.json) context.out << json_page(tune::to_json(*report));
  if (!report->answer.chosen || report->answer.is_ignored) throw tuner.no_answer(*report);
  if (!args.json) print_report(*report, args, context);
  return kExitOk;
}

int run_tune(const TuneArgs& args, Context& context) {
  check_args(args, context);
  const auto program = find_program(context.rest[0], context.environment);
  if (!program) throw Error(ErrorCode::kNotFound, "there is no program {} in PATH", printable(context.rest[0]));
  if (!std::filesystem::exists(*program)) {
    throw Error(ErrorCode::kNotFound, "there is no program {}", printable(program->native()));
  }
  if (!is_program(*program)) {
    throw Error(ErrorCode::kPermissionDenied, "{} is not a program that this user may execute",
                printable(program->native()));
  }
  return attempt_in_child(context, [&](const auto& /*finish*/) { return tune_batch(args, context); });
}

void add_search_options(CLI::App& cmd, TuneArgs& args) {
  add_value(cmd, "--variable", args.variable, "NAME",
            "The environment variable that the program reads; BATCH_SIZE unless --option or {} is used");
  add_value(cmd, "--option", args.option, "NAME",
            "The program's option for its batch size, such as --batch-size, which is added or replaced");
  cmd.add_flag("--per-rank", args.has_per_rank, "The number is the batch of each rank; this is the default");
  cmd.add_flag("--global", args.is_global, "The number is the batch of all ranks together");
  add_number(cmd, "--min", args.search.min, {"N", 1, 1 << 30}, "The smallest batch size to try");
  add_number(cmd, "--max", args.search.max, {"N", 1, 1 << 30}, "The largest batch size to try");
  add_number(cmd, "--multiple-of", args.search.multiple_of, {"N", 1, 1 << 20}, "Try only multiples of N");
  add_number(cmd, "--margin", args.margin_percent, {"PERCENT", 0, 95}, "The share of memory that stays free");
  add_number(cmd, "--tolerance", args.tolerance_percent, {"PERCENT", 0, 50},
             "Choose the smallest batch that is slower than the fastest by at most this; smaller batches mostly "
             "train better");
  add_number(cmd, "--memory", args.memory_mib, {"MIB", 1, 1 << 30},
             "Memory of this host for all ranks; unless given, what is free now and what cgroups leave");
  add_number(cmd, "--dataset-size", args.search.num_samples, {"N", 1, 1e15},
             "Samples of an epoch: no step has more, and steps are told");
  cmd.add_flag("--worst-case", args.search.uses_worst_case,
               "Measure memory in runs with YOKE_TUNE_WORST_CASE=1, for which the program uses its longest samples");
}

void add_time_options(CLI::App& cmd, TuneArgs& args) {
  add_number(cmd, "--seconds", args.seconds, {"SECONDS", 0.1, 3600},
             "Measure each size at most this long; 1 s is enough where steps are equal");
  add_number(cmd, "--timeout", args.timeout_s, {"SECONDS", 1, 86400},
             "A program without a step for so long has failed");
  add_number(cmd, "--budget", args.search.budget_seconds, {"SECONDS", 1, 1e6},
             "Time for the search; then the best so far is the answer");
  add_number(cmd, "--soak", args.soak, {"N", 0, 1e9},
             "Run the answer for N steps, to see that memory lasts; 0: not at all. Unless given, 200, in at most "
             "60 s");
  add_number(cmd, "--soak-time", args.soak_s, {"SECONDS", 1, 1e6}, "The longest time for --soak");
}

}  // namespace

void add_tune(CLI::App& cmd, Context& context) {
  auto& args = add_args<TuneArgs>(cmd, context, run_tune);
  add_search_options(cmd, args);
  add_time_options(cmd, args);
  cmd.add_flag("--json", args.json, "Print JSON");
  cmd.add_flag("--print", args.prints_number, "Print only the batch size, for scripts");
  cmd.add_flag("-v,--verbose", args.shows_output, "Show the program's output");
  add_program(cmd, "PROGRAM", "What to run, with its arguments; every word from here on is its own");
  cmd.footer(examples(
      "  yoke tune batch -- python train.py               it reads BATCH_SIZE\n"
      "  yoke tune batch --option --batch-size -- yoke run -n 2 ./train --epochs 9\n"
      "  yoke tune batch -- ./train --batch={} --lr=0.1   {} is the batch size\n"
      "  yoke tune batch --max 1024 --soak 1000 --dataset-size 60000 -- ./train\n"
      "  BATCH_SIZE=$(yoke tune batch --print -- ./train) ./train\n"
      "\n"
      "The program runs about a dozen times, for some seconds each, and is then asked to end (SIGTERM; after 10 s it "
      "is "
      "killed). It must train with optimizers of yoke or torch. What it writes is written each time: give it a folder "
      "for that.\n"
      "\n"
      "Exit status: 0; 69 if no size works, with the program's last lines; 128 and the signal's number after Ctrl-C; "
      "or that of an error as `yoke --help` lists them."));
}

}  // namespace yoke::cli
