// yoke/tune/step_times.h -- reads the step times that the ranks of a program write (yoke/contract/step_times.h has the
// format), and judges how fast the program steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/tune/measurement.h"

namespace yoke::tune {

/// Step number `step` ended at `seconds`.
struct StepEnd {
  int64_t step = 0;
  double seconds = 0;
  int64_t resident_peak_bytes = 0;  ///< 0: unknown.
};

struct RankSteps {
  int64_t rank = 0, world_size = 1, local_world_size = 1;
  std::vector<StepEnd> ends;
  Memory memory = {};  ///< Without the limit of the host, which ranks do not know.

  int64_t num_steps() const { return ends.empty() ? 0 : ends.back().step + 1; }
};

/// Takes the next part of a rank's file: whole lines. A line that is not understood is left out.
void add_lines(std::string_view text, RankSteps& rank);

/// Follows the files of a folder while they grow.
class StepTimeFolder {
 public:
  explicit StepTimeFolder(std::filesystem::path path) : path_(std::move(path)) {}

  /// Reads what is new, and returns all ranks. If a rank was started again, the newer process counts.
  std::vector<RankSteps> read();

 private:
  struct File {
    int64_t offset = 0;
    std::string rest;  ///< The beginning of a line whose end is not written yet.
    RankSteps steps;
  };
  std::filesystem::path path_;
  std::map<std::string, File> files_;
};

struct PaceOptions {
  double min_seconds = 1;  ///< Measure at least this long, and longer until the mean is certain to 1 %,
  double max_seconds = 5;  ///< but not longer than this.
  int64_t num_warm_up_steps = 3;
};

/// How fast the slowest rank steps.
struct Pace {
  double step_seconds = 0;
  double spread_percent = 0;  ///< The standard deviation between parts of the time, estimated from their median.
  int64_t num_steps = 0;      ///< Steps after the warm-up.
  double seconds = 0;         ///< Time after the warm-up.
  bool is_enough = false;     ///< As PaceOptions asks for; measuring longer is not worth its time.
};

/// Leaves out the first steps and the first fifth of the time, in which caches and allocators warm up, divides the rest
/// into up to ten parts, and takes the median of their means. A part with an evaluation or a checkpoint therefore does
/// not count. nullopt: too few steps for any judgement, or not all ranks of this host have stepped.
std::optional<Pace> pace_of(std::span<const RankSteps> ranks, const PaceOptions& options);

/// How many bytes the resident memory of all ranks of this host grows in a step, in the second half of the steps; 0 if
/// growth is not certain.
double host_growth(std::span<const RankSteps> ranks);

/// What all ranks of this host use: the sum of resident memory, and the rank with the largest share of the others.
Memory memory_of(std::span<const RankSteps> ranks);

}  // namespace yoke::tune
