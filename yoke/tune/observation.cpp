#include "yoke/tune/observation.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/format.h"
#include "yoke/base/signal_name.h"
#include "yoke/tune/program.h"

namespace yoke::tune {

bool Observation::take(std::span<const RankSteps> ranks, double max_seconds) {
  if (ranks.empty()) return false;
  int64_t fewest = INT64_MAX, sum = 0;
  for (const auto& rank : ranks) {
    fewest = std::min(fewest, rank.num_steps());
    sum += rank.num_steps();
  }
  // A rank that appears later than the others adds steps although all ranks together have no more than before.
  if (fewest == 0 || sum == num_rank_steps) return false;
  num_rank_steps = sum;
  num_steps = fewest;
  num_ranks = ranks.front().world_size;
  pace = pace_of(ranks, {.max_seconds = max_seconds});
  soak_seconds = ranks.front().ends.back().seconds - ranks.front().ends.front().seconds;
  memory = memory_of(ranks);
  growth_bytes_per_step = host_growth(ranks);
  return true;
}

Measurement judge(const Probe& probe, const Observation& seen, const RunLimits& limits) {
  Measurement run{.batch = probe.batch, .has_worst_case = probe.has_worst_case};
  run.wall_seconds = seen.wall_seconds;
  run.num_ranks = seen.num_ranks;
  run.memory = seen.memory;
  run.memory[0].limit_bytes = limits.host_bytes;
  if (seen.pace) {
    run.step_seconds = seen.pace->step_seconds;
    run.spread_percent = seen.pace->spread_percent;
    run.num_steps = seen.pace->num_steps;
  }
  const int status = seen.status.value_or(0);
  const auto fail = [&](Outcome outcome, std::string reason) {
    run.outcome = outcome;
    run.reason = std::move(reason);
  };
  if (seen.is_stopped_before_oom) {
    fail(Outcome::kOutOfMemory, "yoke ended the program because this host's memory was nearly used up");
  } else if (seen.is_unwritten) {
    fail(Outcome::kFailed, fmt::format("its ranks could not write step times into {}", limits.folder));
  } else if (status != 0) {
    fail(is_out_of_memory(status, seen.output) ? Outcome::kOutOfMemory : Outcome::kFailed, describe_end(status));
  } else if (seen.num_steps == 0) {
    const auto when = seen.is_without_progress ? fmt::format("in {:g} s (--timeout)", limits.timeout_s)
                                               : std::string("before the program ended");
    fail(Outcome::kFailed, fmt::format("no optimizer of yoke or torch has stepped {}", when));
  } else if (seen.is_without_progress) {
    fail(Outcome::kFailed, fmt::format("no step ended for {:g} s (--timeout)", limits.timeout_s));
  } else if (!seen.pace) {
    fail(Outcome::kFailed, fmt::format("the program ended after {}, which are too few to measure; let it train longer",
                                       counted(seen.num_steps, "step")));
  }
  return run;
}

void add_check(const Observation& seen, const Measurement& run, int64_t num_steps, Report& report) {
  auto& warnings = report.answer.warnings;
  if (run.outcome == Outcome::kFailed) {
    warnings.push_back(fmt::format("the check of the answer failed after {} steps: {}", seen.num_steps, run.reason));
    return;
  }
  const bool is_per_rank = report.options.is_per_rank;
  report.soak = Soak{.num_steps = seen.num_steps,
                     .seconds = seen.soak_seconds,
                     .samples_per_second = samples_per_second(run, is_per_rank),
                     .memory = run.memory,
                     .growth_bytes_per_step = seen.growth_bytes_per_step};
  if (seen.num_steps < num_steps && seen.status) {
    warnings.push_back(fmt::format("the program ended after {} of the {} steps of --soak", seen.num_steps, num_steps));
  }
  if (const double growth = seen.growth_bytes_per_step; growth > 0) {
    const auto& host = run.memory[0];
    const double left = static_cast<double>(host.limit_bytes - host.peak_bytes) / growth;
    warnings.push_back(fmt::format("memory grows by {} in each step, and would be used up after {:.0f} more steps",
                                   format_bytes(static_cast<int64_t>(growth)), std::max(0.0, left)));
  }
  const auto measured = samples_per_second(*report.answer.chosen, is_per_rank);
  if (report.soak->samples_per_second < 0.8 * measured) {
    warnings.push_back(fmt::format(
        "the check of the answer gave {} samples/s instead of {}, so one of the two is wrong: other programs may use "
        "this machine, or the first steps may be faster than later ones",
        format_rate(report.soak->samples_per_second), format_rate(measured)));
  }
}

}  // namespace yoke::tune
