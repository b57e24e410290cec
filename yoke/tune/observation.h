// yoke/tune/observation.h -- what a run of the program has shown, and what follows from it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "yoke/tune/report.h"
#include "yoke/tune/step_times.h"

namespace yoke::tune {

struct Observation {
  std::optional<Pace> pace = {};
  int64_t num_steps = 0, num_ranks = 1;
  int64_t num_rank_steps = 0;  ///< The sum over the ranks of this host.
  double wall_seconds = 0, soak_seconds = 0;
  Memory memory = {};
  double growth_bytes_per_step = 0;
  std::optional<int> status = {};  ///< If it ended by itself.
  bool is_without_progress = false, is_stopped_before_oom = false, is_unwritten = false;
  std::string output = {};

  /// Takes all that the ranks have written, of which at most `max_seconds` are measured. Returns whether there are new
  /// steps.
  bool take(std::span<const RankSteps> ranks, double max_seconds);
};

struct RunLimits {
  int64_t host_bytes = 0;   ///< Memory for all ranks of this host.
  double timeout_s = 300;   ///< A program without a step for so long has failed.
  std::string folder = {};  ///< Where ranks write their step times, for messages.
};

Measurement judge(const Probe& probe, const Observation& seen, const RunLimits& limits);

/// Adds to the report what the run that checks the answer has shown: `run` is what judge() says about it, and was to
/// make `num_steps`. REQUIRES: the report has an answer, and `run` has not used up the memory.
void add_check(const Observation& seen, const Measurement& run, int64_t num_steps, Report& report);

}  // namespace yoke::tune
