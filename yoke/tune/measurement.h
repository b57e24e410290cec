// yoke/tune/measurement.h -- what is known about a batch size after a program has run with it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::tune {

/// What a batch may exhaust.
enum class Resource {
  kHost,          ///< Resident memory of all ranks on this host.
  kAddressSpace,  ///< Address space of one rank, if `ulimit -v` limits it.
  kDevice,        ///< Memory of a rank's GPU.
};
inline constexpr size_t kNumResources = 3;

/// The beginning of the names in JSON: "host", "address_space", "device".
std::string_view name(Resource resource);

struct MemoryUse {
  int64_t peak_bytes = 0;   ///< 0: unknown.
  int64_t limit_bytes = 0;  ///< 0: there is no limit.
};

/// Indexed by Resource.
using Memory = std::array<MemoryUse, kNumResources>;

enum class Outcome { kOk, kOutOfMemory, kFailed };
std::string_view name(Outcome outcome);

/// One run of the program.
struct Measurement {
  int64_t batch = 0;
  bool has_worst_case = false;  ///< The program was asked for its longest samples: only the memory is of interest.
  Outcome outcome = Outcome::kOk;
  double step_seconds = 0;    ///< The time of a step on the slowest rank.
  double spread_percent = 0;  ///< The standard deviation of the parts of the measured time.
  int64_t num_steps = 0;      ///< Steps in the measured time.
  int64_t num_ranks = 1;
  Memory memory = {};
  double wall_seconds = 0;  ///< From the start of the program to its end.
  std::string reason = {};  ///< Why the outcome is not kOk, in a sentence.
};

/// Samples that all ranks together process in a second. `is_per_rank`: each rank has a batch of its own.
double samples_per_second(const Measurement& measurement, bool is_per_rank);

}  // namespace yoke::tune
