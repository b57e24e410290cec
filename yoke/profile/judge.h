// yoke/profile/judge.h -- names the bottleneck of a training, from records of where each rank's time went (account.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/profile/account.h"

namespace yoke::profile {

/// If the traces do not explain at least this share of a rank's time, the answer "none" has a low confidence.
inline constexpr double kMostlyUnexplainedPercent = 50;

enum class Confidence { kLow, kMedium, kHigh };
std::string_view name(Confidence confidence);

/// How much of the step's time one cause takes, over all ranks.
struct Finding {
  Cause cause = Cause::kDataLoading;
  double ceiling_percent = 0;  ///< The share of the step's time that removing the cause saves at most.
  double ms_per_step = 0;
  int64_t num_steps = 0;       ///< Steps, of all ranks, in which the cause is above its threshold.
  int64_t num_steps_seen = 0;  ///< Steps, of all ranks, that were examined.
  /// True if the cause is above its threshold. If there are several steps, it must be so in more than one, to exclude
  /// accidents.
  bool is_named() const {
    return ceiling_percent >= rule_of(cause).threshold_percent && num_steps >= (num_steps_seen < 3 ? 1 : 2);
  }
};

/// A mean over steps. `error_ms` is its standard error, from the spread of the steps; nullopt for fewer than
/// kMinStepsForError.
struct MeanTime {
  double ms = 0;
  std::optional<double> error_ms;

  bool operator==(const MeanTime&) const = default;
};
inline constexpr int64_t kMinStepsForError = 3;

/// Whether a mean is that of few long parts. A part is a step; of a train::Run, a window of some steps.
struct Spread {
  double median_ms = 0;
  int64_t num_long = 0;  ///< Parts of kLongPart times the median or more.
  int64_t num_parts = 0;

  bool operator==(const Spread&) const = default;
};
inline constexpr double kLongPart = 1.5;

struct RankLine {
  int64_t rank = 0;
  std::string path;
  int64_t num_steps = 0;
  bool has_device = false;
  bool is_truncated = false;  ///< The trace ends in the middle.
  double step_ms = 0;
  double computing_percent = 0, loading_percent = 0, communicating_percent = 0, waiting_percent = 0,
         unexplained_percent = 0;
  MeanTime step;
  std::optional<Spread> spread = {};  ///< Of the step. Reports of older versions have none.
  std::array<MeanTime, kNumPhases> phases = {};
};

/// How long operations of this name take in a step, as the mean over ranks.
struct OperationTime {
  std::string name;
  double ms_per_step = 0;

  bool operator==(const OperationTime&) const = default;
};

/// The rank that the others wait for.
struct Straggler {
  int64_t rank = 0;
  double late_percent = 0;  ///< The share of the ranks' waiting in which this rank was the last to arrive.
  std::string why;          ///< What this rank does for longer than the others; empty if the traces do not say.
};

struct Report {
  std::optional<Finding> bottleneck;
  Confidence confidence = Confidence::kHigh;
  std::vector<Finding> findings;  ///< Sorted by ceiling, the largest first. Findings of less than 0.5 % are left out.
  std::optional<Straggler> straggler;
  std::vector<std::string> evidence;  ///< Sentences about the bottleneck.
  std::vector<std::string> notes;     ///< What the traces lack, and which parts of them cannot be used.
  std::vector<RankLine> ranks;        ///< In the order of ranks.
  std::optional<int64_t> world_size;
  bool is_of_run = false;                 ///< Of a train::Run, which knows phases without a trace.
  std::vector<OperationTime> operations;  ///< The largest kNumOperations, in this order.
  static constexpr size_t kNumOperations = 50;
};

/// If several accounts of one rank have successive steps, they are joined.
/// Errors  kInvalidArgument: no accounts; two accounts of one rank contain the same step.
Report judge(std::vector<RankAccount> accounts);

}  // namespace yoke::profile
