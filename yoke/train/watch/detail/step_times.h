// yoke/train/watch/detail/step_times.h -- writes when the steps of this rank ended. `yoke tune` reads these times while
// the program runs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "yoke/base/file.h"
#include "yoke/contract/rank_env.h"
#include "yoke/train/watch/step_end.h"

namespace yoke::train::detail {

/// Writes the format of yoke/contract/step_times.h. If the file cannot be written, prints one warning to standard
/// error, and the program continues without step times.
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
