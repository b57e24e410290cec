// yoke/train/watch/detail/step_times.h -- writes when the steps of this rank ended. `yoke tune` reads these times while
// the program runs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "yoke/base/file.h"
#include "yoke/base/rank_env.h"
#include "yoke/train/watch/step_end.h"

namespace yoke::train::detail {

/// Appends to FOLDER/rank-RANK.PID.jsonl. For Python programs, tools/python/yoke_step_times.py writes the same format:
///
///   {"rank":0,"world_size":2,"local_world_size":2,"pid":4121}
///   {"step":0,"seconds":81.250000000,"resident_peak_bytes":...,"address_space_peak_bytes":...}
///
/// The first line is written with the first step. Each of the first steps has a line; later there is at most one line
/// per 0.1 s. A line says that step number `step` ended at that time of CLOCK_MONOTONIC. So the mean time of the steps
/// between two lines is exact, and a program with fast steps writes little. On a GPU, the line is written when the
/// device is idle. The line also has "device_peak_bytes" (the peak use of the allocator) and "device_limit_bytes" (the
/// device's memory that other programs do not use).
///
/// If the file cannot be written, prints one warning to standard error, and the program continues without step times.
class StepTimes : public StepObserver {
 public:
  StepTimes(std::string folder, const RankEnv& rank);
  ~StepTimes() override;  ///< Writes the last step.

  void on_step(int64_t step) override;

 private:
  void open_file();
  void write_line(int64_t step, int64_t time_ns);

  std::string folder_;
  RankEnv rank_;
  pid_t pid_;  ///< Identifies forked children, which must not write to the parent's file.
  UniqueFd fd_;
  bool is_broken_ = false;
  int64_t next_line_ns_ = 0;
  int64_t last_step_ = -1, last_ns_ = 0, last_written_ = -1;
};

}  // namespace yoke::train::detail
