// yoke/contract/step_times.h -- the format in which the ranks of a program say when their steps ended, for `yoke tune`
// and `yoke plan`. For Python programs, tools/python/yoke_step_times.py writes it.
//
// A rank appends lines to rank-RANK.PID.jsonl in the folder that variable::kStepTimes names:
//
//   {"rank":0,"world_size":2,"local_world_size":2,"pid":4121}
//   {"step":0,"seconds":81.250000000,"resident_peak_bytes":...,"address_space_peak_bytes":...}
//
// The first line is written with the first step. Each of the first steps has a line; later there is at most one line
// per 0.1 s. So the mean time of the steps between two lines is exact, and a program with fast steps writes little. On
// a GPU, the line is written when the device is idle. The last line, written as the program ends, has no memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace yoke {

/// The rank of a file.
struct StepTimesRank {
  int64_t rank = 0, world_size = 1, local_world_size = 1, pid = 0;

  bool operator==(const StepTimesRank&) const = default;
};

/// What a rank uses. 0: unknown, or there is no limit.
struct StepMemory {
  int64_t resident_peak_bytes = 0, address_space_peak_bytes = 0, address_space_limit_bytes = 0;
  int64_t device_peak_bytes = 0;   ///< The peak use of the allocator.
  int64_t device_limit_bytes = 0;  ///< The device's memory that other programs do not use.

  bool operator==(const StepMemory&) const = default;
};

/// Step number `step` ended at `time_ns` of CLOCK_MONOTONIC.
struct StepTime {
  int64_t step = 0;
  int64_t time_ns = 0;
  StepMemory memory = {};

  bool operator==(const StepTime&) const = default;
};

/// Return the line, with its line feed.
std::string to_line(const StepTimesRank& rank);
std::string to_line(const StepTime& time);

/// Returns what the line says; monostate if it is not understood. Ranks are at least 1 in number, and those of a host
/// at most as many.
std::variant<std::monostate, StepTimesRank, StepTime> parse_step_times(std::string_view line);

}  // namespace yoke
