// `yoke tune batch`: runs a program with different batch sizes, and tells which one is the fastest.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "yoke/base/cgroup_limits.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/process.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/progress_line.h"
#include "yoke/cli/options/value.h"
#include "yoke/contract/variables.h"
#include "yoke/program/measured_program.h"
#include "yoke/program/private_folder.h"
#include "yoke/tui/terminal.h"
#include "yoke/tune/program.h"
#include "yoke/tune/report.h"
#include "yoke/tune/search.h"
#include "yoke/tune/step_times.h"
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
constexpr std::chrono::seconds kGrace{10};
constexpr const char* kUnwritten = "step times are not written";  // the warning of a rank, in C++ and in Python

/// What one run of the program has shown.
struct Observation {
  std::optional<tune::Pace> pace;
  int64_t num_steps = 0, num_ranks = 1;
  int64_t num_rank_steps = 0;  ///< The sum over the ranks of this host.
  double wall_seconds = 0, soak_seconds = 0;
  tune::Memory memory = {};
  double growth_bytes_per_step = 0;
  std::optional<int> status;  ///< If it ended by itself.
  bool is_without_progress = false, is_stopped_before_oom = false, is_unwritten = false;
  std::string output;
};

class Tuner {
 public:
  Tuner(const TuneArgs& args, const Context& context)
      : args_(args),
        context_(context),
        search_(args.search),
        folder_(context.environment.value_or("TMPDIR", "/tmp"), "tune"),
        progress_(context.environment) {
    search_.margin = args.margin_percent / 100;
    search_.tolerance = args.tolerance_percent / 100;
    search_.is_per_rank = !args.is_global;
    handover_ = {.variable = args.variable, .option = args.option};
    const bool is_in_words = !args.option.empty() || tune::has_placeholder(context.rest);
    if (handover_.variable.empty() && !is_in_words) handover_.variable = "BATCH_SIZE";
  }

  /// Runs the program until there is an answer. nullopt: interrupted.
  std::optional<tune::Report> tune() {
    while (true) {
      const auto decision = tune::decide(search_, measurements_);
      if (const auto* const probe = std::get_if<tune::Probe>(&decision)) {
        if (!measure(*probe)) return std::nullopt;
        continue;
      }
      tune::Report report{search_, measurements_, std::get<tune::Answer>(decision), std::nullopt};
      const bool has_answer = report.answer.chosen && !report.answer.is_ignored;
      if (!has_answer || args_.soak.value_or(kDefaultSoak) == 0) return report;
      const auto num_before = measurements_.size();
      if (!soak(report)) return std::nullopt;
      if (measurements_.size() == num_before) return report;
    }
  }

  int interruption() const { return interruption_; }
  const std::vector<tune::Measurement>& measurements() const { return measurements_; }
  const tune::SearchOptions& search() const { return search_; }
  /// The end of the output of the last run.
  const std::string& last_output() const { return last_output_; }

  /// How the program is told its batch size, for messages.
  std::string handover_words() const {
    if (!handover_.variable.empty()) return handover_.variable;
    return !handover_.option.empty() ? handover_.option : "{}";
  }

 private:
  std::vector<std::string> environment_for(int64_t batch, bool has_worst_case, const std::string& folder) const {
    auto environment = with_python_hooks(context_.environment, context_.installation);
    if (!handover_.variable.empty()) environment.set(handover_.variable, std::to_string(batch));
    environment.set(variable::kStepTimes, folder);
    environment.erase(variable::kTuneWorstCase);
    if (has_worst_case) environment.set(variable::kTuneWorstCase, "1");
    return environment.to_strings();
  }

  /// Runs the program until `is_enough`. nullopt: interrupted.
  template <typename IsEnough>
  std::optional<Observation> observe(const tune::Probe& probe, const IsEnough& is_enough) {
    const auto folder = folder_.path() / std::to_string(num_runs_++);
    std::filesystem::create_directory(folder);
    const auto begin = Clock::now();
    auto last_progress = begin;
    Observation seen;
    tune::StepTimeFolder steps(folder);
    program::MeasuredProgram program({.argv = tune::with_batch(context_.rest, handover_, probe.batch),
                                      .environment = environment_for(probe.batch, probe.has_worst_case, folder),
                                      .copy_to = args_.shows_output ? STDERR_FILENO : kNullStream});
    const auto seconds_since = [](Clock::time_point time) {
      return std::chrono::duration<double>(Clock::now() - time).count();
    };
    while (true) {
      program.wait(messages_, std::chrono::milliseconds(100));
      const auto ranks = steps.read();
      if (take(ranks, seen)) last_progress = Clock::now();
      seen.wall_seconds = seconds_since(begin);
      if (program.interruption() || program.status()) break;
      if (is_enough(seen)) break;
      seen.is_stopped_before_oom = available_memory_bytes() < host_available_ / 50;
      seen.is_without_progress = seconds_since(last_progress) > args_.timeout_s;
      seen.is_unwritten = program.output().find(kUnwritten) != std::string::npos;
      if (seen.is_stopped_before_oom || seen.is_without_progress || seen.is_unwritten) break;
      show(probe, seen);
    }
    seen.status = program.status();
    const bool has_interruption = program.interruption().has_value();
    const auto grace = seen.is_stopped_before_oom ? std::chrono::milliseconds(0)
                       : ignores_sigterm_         ? std::chrono::milliseconds(500)
                       : has_interruption         ? std::chrono::milliseconds(3000)
                                                  : std::chrono::milliseconds(kGrace);
    if (!program.end(messages_, grace) && !seen.is_stopped_before_oom) ignores_sigterm_ = true;
    if (has_interruption || program.interruption()) {
      interruption_ = program.interruption().value_or(SIGINT);
      return std::nullopt;
    }
    take(steps.read(), seen);
    seen.wall_seconds = seconds_since(begin);
    seen.output = program.output();
    last_output_ = seen.output;
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    return seen;
  }

  /// Returns whether there are new steps.
  bool take(const std::vector<tune::RankSteps>& ranks, Observation& seen) const {
    if (ranks.empty()) return false;
    int64_t num_steps = INT64_MAX, num_rank_steps = 0;
    for (const auto& rank : ranks) {
      num_steps = std::min(num_steps, rank.num_steps());
      num_rank_steps += rank.num_steps();
    }
    // A rank that appears later than the others adds steps although all ranks together have no more than before.
    if (num_steps == 0 || num_rank_steps == seen.num_rank_steps) return false;
    seen.num_rank_steps = num_rank_steps;
    seen.num_steps = num_steps;
    seen.num_ranks = ranks.front().world_size;
    seen.pace = tune::pace_of(ranks, {.max_seconds = args_.seconds});
    seen.soak_seconds = ranks.front().ends.back().seconds - ranks.front().ends.front().seconds;
    seen.memory = tune::memory_of(ranks);
    seen.growth_bytes_per_step = tune::host_growth(ranks);
    return true;
  }

  void show(const tune::Probe& probe, const Observation& seen) {
    progress_.show(fmt::format("batch size {} ({}): {}", probe.batch, probe.purpose,
                               seen.num_steps == 0
                                   ? fmt::format("starting, {:.0f} s", seen.wall_seconds)
                                   : fmt::format("{} steps, {:.0f} s", seen.num_steps, seen.wall_seconds)));
  }

  void finish(const tune::Measurement& run) {
    progress_.clear();
    std::cerr << fmt::format("batch size {}: {}\n", run.batch, to_line(run, search_)) << std::flush;
  }

  void look_at_memory() {
    host_available_ = available_memory_bytes();
    host_limit_ = args_.memory_mib ? *args_.memory_mib << 20 : host_available_;
  }

  /// The last line of what the program printed, as a part of a sentence.
  static std::string last_words(const std::string& output) {
    auto line = tune::last_lines(output, 1);
    std::erase(line, '\n');
    const auto begin = line.find_first_not_of(' ');
    return begin == line.npos ? "" : ": " + line.substr(begin);
  }

  tune::Measurement judged(const tune::Probe& probe, const Observation& seen) const {
    tune::Measurement run{.batch = probe.batch, .has_worst_case = probe.has_worst_case};
    run.wall_seconds = seen.wall_seconds;
    run.num_ranks = seen.num_ranks;
    run.memory = seen.memory;
    run.memory[0].limit_bytes = host_limit_;
    if (seen.pace) {
      run.step_seconds = seen.pace->step_seconds;
      run.spread_percent = seen.pace->spread_percent;
      run.num_steps = seen.pace->num_steps;
    }
    const tune::Ending ending{seen.status.value_or(0), seen.output};
    const auto fail = [&](tune::Outcome outcome, std::string reason) {
      run.outcome = outcome;
      run.reason = std::move(reason);
    };
    if (seen.is_stopped_before_oom) {
      fail(tune::Outcome::kOutOfMemory, "yoke ended the program because this host's memory was nearly used up");
    } else if (seen.is_unwritten) {
      fail(tune::Outcome::kFailed,
           fmt::format("its ranks could not write step times into {}", folder_.path().string()));
    } else if (ending.status != 0) {
      fail(tune::is_out_of_memory(ending) ? tune::Outcome::kOutOfMemory : tune::Outcome::kFailed,
           describe_end(ending.status));
    } else if (seen.num_steps == 0) {
      const auto when = seen.is_without_progress ? fmt::format("in {:g} s (--timeout)", args_.timeout_s)
                                                 : std::string("before the program ended");
      fail(tune::Outcome::kFailed, fmt::format("no optimizer of yoke or torch has stepped {}", when));
    } else if (seen.is_without_progress) {
      fail(tune::Outcome::kFailed, fmt::format("no step ended for {:g} s (--timeout)", args_.timeout_s));
    } else if (!seen.pace) {
      fail(tune::Outcome::kFailed,
           fmt::format("the program ended after {}, which are too few to measure; let it train longer",
                       counted(seen.num_steps, "step")));
    }
    return run;
  }

  bool measure(const tune::Probe& probe) {
    look_at_memory();
    const auto seen = observe(probe, [&](const Observation& now) { return now.pace && now.pace->is_enough; });
    if (!seen) return false;
    auto run = judged(probe, *seen);
    measurements_.push_back(run);
    // The last lines of the first size are shown with the error, if no size works.
    if (run.outcome == tune::Outcome::kFailed && seen->status) run.reason += last_words(seen->output);
    finish(run);
    // A batch that is divided among the ranks should be divisible.
    if (!search_.is_per_rank) search_.multiple_of = std::lcm(args_.search.multiple_of, run.num_ranks);
    return true;
  }

  /// Runs the answer for longer. If it does not hold, measurements_ has one more, and the search goes on.
  bool soak(tune::Report& report) {
    const auto num_steps = args_.soak.value_or(kDefaultSoak);
    const auto limit = args_.soak_s.value_or(args_.soak ? HUGE_VAL : kDefaultSoakSeconds);
    const tune::Probe probe{report.answer.chosen->batch, false, "checking the answer"};
    look_at_memory();
    const auto seen =
        observe(probe, [&](const Observation& now) { return now.num_steps >= num_steps || now.soak_seconds > limit; });
    if (!seen) return false;
    auto run = judged(probe, *seen);
    if (run.outcome == tune::Outcome::kOutOfMemory) {
      finish(run);
      measurements_.push_back(run);
      return true;
    }
    if (run.outcome == tune::Outcome::kFailed) {
      report.answer.warnings.push_back(
          fmt::format("the check of the answer failed after {} steps: {}", seen->num_steps, run.reason));
      return true;
    }
    report.soak = tune::Soak{.num_steps = seen->num_steps,
                             .seconds = seen->soak_seconds,
                             .samples_per_second = tune::samples_per_second(run, search_.is_per_rank),
                             .memory = run.memory,
                             .growth_bytes_per_step = seen->growth_bytes_per_step};
    if (seen->num_steps < num_steps && seen->status) {
      report.answer.warnings.push_back(
          fmt::format("the program ended after {} of the {} steps of --soak", seen->num_steps, num_steps));
    }
    add_growth_warning(*report.soak, report.answer);
    const auto measured = tune::samples_per_second(*report.answer.chosen, search_.is_per_rank);
    if (report.soak->samples_per_second < 0.8 * measured) {
      report.answer.warnings.push_back(fmt::format(
          "the check of the answer gave {} samples/s instead of {}, so one of the two is wrong: other programs may use "
          "this machine, or the first steps may be faster than later ones",
          format_rate(report.soak->samples_per_second), format_rate(measured)));
    }
    return true;
  }

  static void add_growth_warning(const tune::Soak& soak, tune::Answer& answer) {
    if (soak.growth_bytes_per_step <= 0) return;
    const auto& host = soak.memory[0];
    const double left = static_cast<double>(host.limit_bytes - host.peak_bytes) / soak.growth_bytes_per_step;
    answer.warnings.push_back(
        fmt::format("memory grows by {} in each step, and would be used up after {:.0f} more steps",
                    format_bytes(static_cast<int64_t>(soak.growth_bytes_per_step)), std::max(0.0, left)));
  }

  const TuneArgs& args_;
  const Context& context_;
  tune::SearchOptions search_;
  tune::Handover handover_;
  program::SignalMessages messages_;  // before the folder, so that a signal cannot end this process without removing it
  program::PrivateFolder folder_;
  ProgressLine progress_;
  std::vector<tune::Measurement> measurements_;
  std::string last_output_;
  int64_t host_available_ = 0, host_limit_ = 0;  // when the current run began
  int num_runs_ = 0, interruption_ = 0;
  bool ignores_sigterm_ = false;
};

void check_args(const TuneArgs& args, const Context& context) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::kInvalidArgument, "{}", why); };
  if (context.words.size() < 2 || context.words[1] != "batch") {
    refuse("say what to tune: `yoke tune batch -- PROGRAM`");
  }
  if (context.rest.empty()) refuse("give a program, as in `yoke tune batch -- python train.py`");
  if (args.search.min > args.search.max) {
    refuse(fmt::format("--min {} is above --max {}", args.search.min, args.search.max));
  }
  if (args.search.max / args.search.multiple_of * args.search.multiple_of < args.search.min) {
    refuse(fmt::format("no multiple of {} lies between --min {} and --max {}", args.search.multiple_of, args.search.min,
                       args.search.max));
  }
  const auto num_ways =
      (args.variable.empty() ? 0 : 1) + (args.option.empty() ? 0 : 1) + (tune::has_placeholder(context.rest) ? 1 : 0);
  if (num_ways > 1) {
    refuse("--variable, --option and {} are three ways to tell the program its batch size; use one of them");
  }
  if (args.option == "--") refuse("--option: the name of the program's option is missing, such as --batch-size");
  if (args.variable.find('=') != std::string::npos) {
    refuse(fmt::format("--variable {}: give the name of a variable, without a value", printable(args.variable)));
  }
  if (args.search.num_samples && *args.search.num_samples < args.search.min) {
    refuse(fmt::format("--dataset-size {} is less than --min {}", *args.search.num_samples, args.search.min));
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

[[noreturn]] void report_no_answer(const Tuner& tuner, const tune::Report& report, const Context& context) {
  if (report.answer.is_ignored) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{} seems to be ignored: a step takes the same time and memory with {} as with {}. Let the program "
                "read it (see --variable, --option and {{}} in --help); if it does, give a larger --min",
                tuner.handover_words(), report.answer.fastest->batch, report.measurements.front().batch);
  }
  auto message = report.answer.problem;
  const auto& last = report.measurements.back();
  if (last.outcome == tune::Outcome::kFailed) message = fmt::format("with batch size {}, {}", last.batch, message);
  if (last.outcome == tune::Outcome::kOk) throw Error(ErrorCode::kFailedPrecondition, "{}", message);
  const auto lines = tune::last_lines(tuner.last_output(), 10);
  if (lines.empty()) throw Error(ErrorCode::kFailedPrecondition, "{}; it printed nothing", message);
  throw Error(ErrorCode::kFailedPrecondition, "{}; the last lines of {}:\n{}", message, printable(context.rest[0]),
              lines.substr(0, lines.size() - 1));
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

int tune_batch(const TuneArgs& args, Context& context) {
  Tuner tuner(args, context);
  const auto report = tuner.tune();
  if (!report) {
    tune::Report so_far{tuner.search(), tuner.measurements(), {}, std::nullopt};
    if (!so_far.measurements.empty()) {
      std::cerr << "\nyoke tune: interrupted; measured until then:\n" << tune::to_table(so_far, 100);
    }
    return 128 + tuner.interruption();
  }
  if (args.json) print_json(tune::to_json(*report), context);
  if (!report->answer.chosen || report->answer.is_ignored) report_no_answer(tuner, *report, context);
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
  cmd.add_option("--variable", args.variable,
                 "The environment variable that the program reads; BATCH_SIZE unless --option or {} is used")
      ->type_name("NAME");
  cmd.add_option("--option", args.option,
                 "The program's option for its batch size, such as --batch-size, which is added or replaced")
      ->type_name("NAME");
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
  auto args = std::make_shared<TuneArgs>();  // CLI11 keeps references to it; the callback owns it
  add_search_options(cmd, *args);
  add_time_options(cmd, *args);
  cmd.add_flag("--json", args->json, "Print JSON");
  cmd.add_flag("--print", args->prints_number, "Print only the batch size, for scripts");
  cmd.add_flag("-v,--verbose", args->shows_output, "Show the program's output");
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
  cmd.callback([args, &context] { context.exit_code = run_tune(*args, context); });
}

}  // namespace yoke::cli
