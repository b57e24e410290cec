#include "yoke/slurm/sweep_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/slurm/check/request.h"

namespace yoke::slurm {
namespace {

/// Whether the file "status" is of the last run of the task.
bool is_of_last_run(const SweepEvidence& evidence) {
  if (!evidence.status || evidence.jobs.empty()) return evidence.status.has_value();
  const auto& [_, job, restart] = *evidence.status;
  const auto found = std::ranges::find(evidence.jobs, job);
  if (found == evidence.jobs.end()) return true;  // of a submission that sweep.json does not know
  return found + 1 == evidence.jobs.end() && (!evidence.task || restart >= evidence.task->num_restarts);
}

SweepState failure(const SweepEvidence& evidence, const std::string& cause) {
  const auto state = evidence.is_out_of_memory                     ? "OUT_OF_MEMORY"
                     : evidence.task && evidence.task->has_ended() ? evidence.task->state
                                                                   : "";
  const auto end = state == "OUT_OF_MEMORY" ? SweepEnd::kOutOfMemory
                   : state == "TIMEOUT"     ? SweepEnd::kTimeLimit
                                            : SweepEnd::kFailed;
  const bool tells_more = !state.empty() && state != "FAILED" && state != "COMPLETED";
  return {end, fmt::format("failed ({})", printable(tells_more || cause.empty() ? state : cause))};
}

/// The option that counts of those with these names; null if none is given.
const check::GivenOption* last_option(const check::ParsedOptions& parsed,
                                      std::initializer_list<std::string_view> names) {
  const check::GivenOption* last = nullptr;
  for (const auto& option : parsed.given) {
    if (std::ranges::find(names, option.spec->name) != names.end()) last = &option;
  }
  return last;
}

/// The option with the larger limit. Empty: the task did not run out of anything.
std::string grown_limit(const std::vector<std::string>& options, SweepEnd end, double growth, int64_t task) {
  if (end != SweepEnd::kOutOfMemory && end != SweepEnd::kTimeLimit) return "";
  const bool is_time = end == SweepEnd::kTimeLimit;
  std::vector<check::OptionWord> words;
  for (const auto& option : options) words.push_back({.text = option});
  const auto parsed = check::parse_options(check::kSbatch, words);
  const auto* limit =
      is_time ? last_option(parsed, {"time"}) : last_option(parsed, {"mem", "mem-per-cpu", "mem-per-gpu"});
  const auto amount = !limit    ? std::nullopt
                      : is_time ? check::parse_minutes(limit->value)
                                : check::parse_mebibytes(limit->value);
  if (!amount || *amount <= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "task {} ran out of {}, but was submitted without {}, so there is no limit that could grow; give one "
                "for all with --sbatch '{}'",
                task, is_time ? "time" : "memory", is_time ? "--time" : "an amount of --mem",
                is_time ? "--time=2:00:00" : "--mem=16G");
  }
  const auto grown = static_cast<int64_t>(std::ceil(static_cast<double>(*amount) * growth));
  return fmt::format("--{}={}{}", limit->spec->name, grown, is_time ? "" : "M");
}

}  // namespace

std::optional<SweepStatus> parse_sweep_status(std::string_view text) {
  const auto words = words_of(text.substr(0, text.find('\n')));
  const auto code = words.empty() ? std::nullopt : parse_int(words[0]);
  if (!code) return std::nullopt;
  SweepStatus status{.code = *code, .job = ""};
  if (words.size() > 1) status.job = words[1];
  if (words.size() > 2) status.restart = parse_int(words[2]).value_or(0);
  return status;
}

bool SweepState::has_failed() const {
  return end == SweepEnd::kFailed || end == SweepEnd::kOutOfMemory || end == SweepEnd::kTimeLimit ||
         end == SweepEnd::kNeverStarted;
}

SweepState state_of(const SweepEvidence& evidence) {
  const auto& task = evidence.task;
  if (is_of_last_run(evidence)) {
    const auto code = evidence.status->code;
    return code == 0 ? SweepState{SweepEnd::kDone, "done"} : failure(evidence, std::to_string(code));
  }
  // Without a file: the task has not ended, or Slurm ended its script.
  if (!task) {
    const bool is_lost = evidence.is_answered && !evidence.has_output;
    return is_lost ? SweepState{SweepEnd::kNeverStarted, "never started"}
                   : SweepState{SweepEnd::kNotKnown, "not known"};
  }
  if (!task->has_ended()) return {SweepEnd::kNotEnded, "not ended"};
  if (task->state == "COMPLETED") return {SweepEnd::kDone, "done"};
  if (!task->has_run()) return {SweepEnd::kNeverStarted, fmt::format("never started ({})", printable(task->state))};
  return failure(evidence, "");
}

std::vector<SweepRerun> plan_rerun(const Sweep& sweep, const std::vector<SweepState>& states,
                                   const RerunOptions& options) {
  std::vector<SweepRerun> reruns;
  for (size_t i = 0; i < states.size(); ++i) {
    if (!states[i].has_failed() && states[i].end != SweepEnd::kNotKnown) continue;
    const auto task = static_cast<int64_t>(i);
    auto words = options_of_task(sweep, task);
    const auto limit = options.growth ? grown_limit(words, states[i].end, *options.growth, task) : "";
    if (!limit.empty()) words.push_back(limit);
    words.insert(words.end(), options.options.begin(), options.options.end());
    const auto same = std::ranges::find(reruns, words, &SweepRerun::options);
    if (same == reruns.end()) {
      reruns.push_back({.job = "", .tasks = {task}, .options = std::move(words)});
    } else {
      same->tasks.push_back(task);
    }
  }
  return reruns;
}

}  // namespace yoke::slurm
