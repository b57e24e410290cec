// yoke/tune/search.h -- decides which batch size to measure next, and in the end which one is the answer. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "yoke/tune/fit.h"
#include "yoke/tune/measurement.h"

namespace yoke::tune {

struct SearchOptions {
  int64_t min = 1, max = 65536;
  int64_t multiple_of = 1;
  bool is_per_rank = true;  ///< A batch is that of one rank, and not of all ranks together.
  double margin = 0.1;      ///< The share of memory that stays free.
  double tolerance = 0.02;  ///< A smaller batch is preferred to one that is faster by less than this share.
  std::optional<int64_t> num_samples = {};  ///< The size of the data set, which limits the batch of a step.
  bool uses_worst_case = false;             ///< Memory is measured with the program's longest samples.
  double budget_seconds = 600;              ///< When it is spent, the best size so far is the answer.
};

/// The order to run the program with this batch size.
struct Probe {
  int64_t batch = 0;
  bool has_worst_case = false;
  std::string_view purpose;  ///< For the progress: "growing", "between two sizes", "once more".
};

/// Why no larger batch is the answer.
enum class Bound {
  kNoGain,   ///< Larger ones were measured, and are not faster.
  kMemory,   ///< Larger ones do not fit.
  kMaximum,  ///< SearchOptions::max
  kDataSet,  ///< A step has all samples.
  kFailure,  ///< The program fails with larger ones.
  kBudget,   ///< The time was over.
};
/// "no_gain", "memory", "maximum", "data_set", "failure", "time"
std::string_view name(Bound bound);

struct Answer {
  std::optional<Measurement> chosen;   ///< nullopt: no batch size works; `problem` says why.
  std::optional<Measurement> fastest;  ///< May be larger than the chosen one, and faster by less than the tolerance.
  Bound bound = Bound::kNoGain;
  std::optional<Line> time;  ///< The time of a step by batch size, in seconds, near the chosen size and below.
  std::optional<int64_t> largest_fitting;  ///< As predicted, with the margin; nullopt: memory is not the limit.
  bool is_ignored = false;  ///< Neither time nor memory depends on the batch size: the program seems to ignore it.
  std::string problem;
  std::vector<std::string> warnings;
};

/// The measurements are in the order in which they were made.
std::variant<Probe, Answer> decide(const SearchOptions& options, std::span<const Measurement> measurements);

/// Batch sizes that are tried: powers of two and three sizes between two of them (multiples of 1/4 of the power), each
/// rounded down to a multiple. Returns the largest one that is at most `batch`, or 0.
int64_t round_down(int64_t batch, int64_t multiple_of);

}  // namespace yoke::tune
