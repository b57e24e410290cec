#include "yoke/slurm/job/sweep_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/slurm/words/request.h"

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

/// The last one given of the options that limit the time, or the memory; nullopt if none is given.
std::optional<check::GivenOption> limit_in(const std::vector<std::string>& options, bool is_time) {
  std::optional<check::GivenOption> last;
  for (const auto& option : check::parse_options(check::kSbatch, check::option_words(options)).given) {
    const std::string_view name = option.spec->name;
    if (is_time ? name == "time" : name == "mem" || name == "mem-per-cpu" || name == "mem-per-gpu") last = option;
  }
  return last;
}

/// The larger limit of a task that ran out of memory or time. Empty: `more` has a limit already.
std::string grown_limit(const std::vector<std::string>& options, const RerunOptions& more, bool is_time, int64_t task) {
  if (limit_in(more.options, is_time)) return "";
  const auto limit = limit_in(options, is_time);
  const auto amount = !limit    ? std::nullopt
                      : is_time ? check::parse_minutes(limit->value)
                                : check::parse_mebibytes(limit->value);
  if (!amount || *amount <= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "task {} ran out of {}, but was submitted without {}, so there is no limit that could grow; give one "
                "with --sbatch {}",
                task, is_time ? "time" : "memory", is_time ? "--time" : "an amount of --mem",
                is_time ? "--time=2:00:00" : "--mem=16G");
  }
  const auto grown = static_cast<int64_t>(std::ceil(static_cast<double>(*amount) * *more.growth));
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
    const bool is_time = states[i].end == SweepEnd::kTimeLimit;
    if (options.growth && (is_time || states[i].end == SweepEnd::kOutOfMemory)) {
      if (auto limit = grown_limit(words, options, is_time, task); !limit.empty()) words.push_back(std::move(limit));
    }
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
