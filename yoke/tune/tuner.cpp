#include "yoke/tune/tuner.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <variant>

#include "yoke/base/cgroup_limits.h"
#include "yoke/contract/variables.h"
#include "yoke/program/measured_program.h"

namespace yoke::tune {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kGrace{10'000};
constexpr const char* kUnwritten = "step times are not written";  // the warning of a rank, in C++ and in Python

double seconds_since(Clock::time_point time) { return std::chrono::duration<double>(Clock::now() - time).count(); }

/// The last line of what the program printed, as a part of a sentence.
std::string last_words(const std::string& output) {
  auto line = last_lines(output, 1);
  std::erase(line, '\n');
  const auto begin = line.find_first_not_of(' ');
  return begin == line.npos ? "" : ": " + line.substr(begin);
}

}  // namespace

Tuner::Tuner(TunerOptions options)
    : options_(std::move(options)),
      multiple_of_(options_.search.multiple_of),
      folder_(options_.environment.value_or("TMPDIR", "/tmp"), "tune") {
  auto& handover = options_.handover;
  const bool is_in_words = !handover.option.empty() || has_placeholder(options_.argv);
  if (handover.variable.empty() && !is_in_words) handover.variable = "BATCH_SIZE";
}

std::optional<Report> Tuner::tune() {
  while (true) {
    const auto decision = decide(options_.search, measurements_);
    if (const auto* const probe = std::get_if<Probe>(&decision)) {
      if (!measure(*probe)) return std::nullopt;
      continue;
    }
    Report report{options_.search, measurements_, std::get<Answer>(decision), std::nullopt};
    const bool has_answer = report.answer.chosen && !report.answer.is_ignored;
    if (!has_answer || options_.soak_steps == 0) return report;
    const auto num_before = measurements_.size();
    if (!soak(report)) return std::nullopt;
    if (measurements_.size() == num_before) return report;
  }
}

Error Tuner::no_answer(const Report& report) const {
  constexpr auto kCode = ErrorCode::kFailedPrecondition;
  if (report.answer.is_ignored) {
    const auto& [variable, option] = options_.handover;
    return {kCode,
            "{} seems to be ignored: a step takes the same time and memory with {} as with {}. Let the program "
            "read it (see --variable, --option and {{}} in --help); if it does, give a larger --min",
            !variable.empty() ? variable : (!option.empty() ? option : "{}"), report.answer.fastest->batch,
            report.measurements.front().batch};
  }
  auto message = report.answer.problem;
  const auto& last = report.measurements.back();
  if (last.outcome == Outcome::kFailed) message = fmt::format("with batch size {}, {}", last.batch, message);
  if (last.outcome != Outcome::kOk) message += end_of_output(options_.argv[0], last_output_);
  return {kCode, "{}", message};
}

std::vector<std::string> Tuner::environment_for(const Probe& probe, const std::string& folder) const {
  auto environment = options_.environment;
  const auto& variable = options_.handover.variable;
  if (!variable.empty()) environment.set(variable, std::to_string(probe.batch));
  environment.set(variable::kStepTimes, folder);
  environment.erase(variable::kTuneWorstCase);
  if (probe.has_worst_case) environment.set(variable::kTuneWorstCase, "1");
  return environment.to_strings();
}

std::optional<Observation> Tuner::observe(const Probe& probe,
                                          const std::function<bool(const Observation&)>& is_enough) {
  const auto folder = folder_.path() / std::to_string(num_runs_++);
  std::filesystem::create_directory(folder);
  host_available_ = available_memory_bytes();
  const auto begin = Clock::now();
  auto last_progress = begin;
  Observation seen;
  StepTimeFolder steps(folder);
  program::MeasuredProgram program({.argv = with_batch(options_.argv, options_.handover, probe.batch),
                                    .environment = environment_for(probe, folder),
                                    .copy_to = options_.copy_to});
  while (true) {
    program.wait(messages_, milliseconds(100));
    if (seen.take(steps.read(), options_.seconds)) last_progress = Clock::now();
    seen.wall_seconds = seconds_since(begin);
    if (program.interruption() || program.status()) break;
    if (is_enough(seen)) break;
    seen.is_stopped_before_oom = available_memory_bytes() < host_available_ / 50;
    seen.is_without_progress = seconds_since(last_progress) > options_.timeout_s;
    seen.is_unwritten = program.output().find(kUnwritten) != std::string::npos;
    if (seen.is_stopped_before_oom || seen.is_without_progress || seen.is_unwritten) break;
    const auto progress = seen.num_steps == 0 ? std::string("starting") : fmt::format("{} steps", seen.num_steps);
    options_.on_progress(
        fmt::format("batch size {} ({}): {}, {:.0f} s", probe.batch, probe.purpose, progress, seen.wall_seconds));
  }
  seen.status = program.status();
  const bool has_interruption = program.interruption().has_value();
  const auto grace = seen.is_stopped_before_oom ? milliseconds(0)
                     : ignores_sigterm_         ? milliseconds(500)
                     : has_interruption         ? milliseconds(3000)
                                                : kGrace;
  if (!program.end(messages_, grace) && !seen.is_stopped_before_oom) ignores_sigterm_ = true;
  if (has_interruption || program.interruption()) {
    interruption_ = program.interruption().value_or(SIGINT);
    return std::nullopt;
  }
  seen.take(steps.read(), options_.seconds);
  seen.wall_seconds = seconds_since(begin);
  seen.output = last_output_ = program.output();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return seen;
}

Measurement Tuner::judged(const Probe& probe, const Observation& seen) const {
  return judge(probe, seen,
               {.host_bytes = options_.host_bytes.value_or(host_available_),
                .timeout_s = options_.timeout_s,
                .folder = folder_.path().string()});
}

bool Tuner::measure(const Probe& probe) {
  const auto seen = observe(probe, [](const Observation& now) { return now.pace && now.pace->is_enough; });
  if (!seen) return false;
  auto run = judged(probe, *seen);
  measurements_.push_back(run);
  // The last lines of the first size are shown with the error, if no size works.
  if (run.outcome == Outcome::kFailed && seen->status) run.reason += last_words(seen->output);
  options_.on_measured(run, options_.search);
  // A batch that is divided among the ranks should be divisible.
  if (!options_.search.is_per_rank) options_.search.multiple_of = std::lcm(multiple_of_, run.num_ranks);
  return true;
}

/// Runs the answer for longer. If it does not hold, measurements_ has one more, and the search goes on.
bool Tuner::soak(Report& report) {
  const Probe probe{report.answer.chosen->batch, false, "checking the answer"};
  const auto seen = observe(probe, [&](const Observation& now) {
    return now.num_steps >= options_.soak_steps || now.soak_seconds > options_.soak_seconds;
  });
  if (!seen) return false;
  const auto run = judged(probe, *seen);
  if (run.outcome != Outcome::kOutOfMemory) {
    add_check(*seen, run, options_.soak_steps, report);
    return true;
  }
  options_.on_measured(run, options_.search);
  measurements_.push_back(run);
  return true;
}

}  // namespace yoke::tune
