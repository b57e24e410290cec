// yoke/train/watch/detail/slowdown.h -- what makes the steps of a training slow: a late rank, its data, the exchange,
// or what lies outside of forward, backward, the optimizer and the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/train/detail/step_phases.h"

namespace yoke::train::detail {

struct Slowdown {
  enum class Cause : uint8_t {
    kLateRank,  ///< The others wait for `rank`.
    kData,      ///< Ranks wait for their batches.
    kExchange,  ///< No rank is late, and yet all wait for the mean of the gradients.
    kRest,      ///< Phase::kOther takes much of the step.
  };
  Cause cause = Cause::kLateRank;
  int64_t rank = 0;               ///< Of a late rank.
  Phase phase = Phase::kForward;  ///< Of a late rank: the phase in which it takes longer than the others.
  double lost_ms = 0;             ///< Of each step.
  double step_ms = 0;
  int64_t since = 0;  ///< Of a late rank: the first step of those in which it is late.

  bool operator==(const Slowdown&) const = default;
};

inline constexpr size_t kMinWindows = 8;  ///< With fewer windows, nothing is reported.

/// Returns the largest cause, or nullopt: nothing that is worth a sentence, or too few steps.
///
/// A rank is late in a window if its work, which is its step without its wait for the others, takes longer than what
/// the others need (the median) by a tenth of the step, and the others' wait is longer than its own by at least half of
/// that. A rank needs the time of its work, and at least that of its loader for the batches. It is reported if it is
/// late in seven of eight windows, at least eight, up to the last one. On a machine where ranks share processors,
/// another rank is late in each window.
///
/// What a rank does in kOther every N steps, such as an evaluation, makes it late in some windows alone: that is
/// reported if it is late by 30 % of eight of them, up to now, and has 7/8 of the lateness of all.
///
/// Data are reported if the ranks' waits for batches are 15 % of all time: their mean, or if a loader determines the
/// steps, their sum. The exchange is reported if the shortest wait of all ranks, of several, is 20 % in three of four
/// windows, and kOther if it takes 15 % and 0.1 ms of a step on each rank. If a loader determines the steps, data come
/// first, else the largest.
///
/// `ranks`: of each rank the same number of windows, of `steps_per_window` steps. `first_step` is that of the first
/// one.
/// `has_device`: the host's times are not those of the computation, and kOther may be a wait for the device, so it is
/// not reported.
std::optional<Slowdown> find_slowdown(const std::vector<std::vector<PhaseTimes>>& ranks, int64_t steps_per_window,
                                      int64_t first_step, bool has_device = false);

/// The time of all windows of the rank that has the longest.
Clock::duration longest_time(const std::vector<std::vector<PhaseTimes>>& ranks);

/// A sentence such as "rank 3 is late by 12 ms of each step of 67 ms (18 %) since step 4100, in backward; the others
/// wait for it".
std::string to_text(const Slowdown& slowdown);

/// Whether `now` says something that `before` did not: another cause, rank or phase, or a loss half as large again.
bool is_news(const std::optional<Slowdown>& before, const Slowdown& now);

}  // namespace yoke::train::detail
