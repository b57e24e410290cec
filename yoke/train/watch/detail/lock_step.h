// yoke/train/watch/detail/lock_step.h -- makes copies of a program wait for each other after each step, as the ranks of
// a job do. `yoke plan --neighbours` measures with it what the slowest of several devices costs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/train/watch/step_end.h"

namespace yoke::train::detail {

/// Does what variable::kLockStep asks for (yoke/contract/variables.h). For Python programs,
/// tools/python/yoke_lock_step.py does the same.
///
/// A forked child does not wait. If reading or writing fails, prints one warning to standard error, and waits no more.
class LockStep : public StepObserver {
 public:
  /// Errors  as errno says, with the path.
  explicit LockStep(const std::filesystem::path& own);

  void on_step(int64_t step) override;

 private:
  pid_t pid_;
  UniqueFd own_;
  std::vector<UniqueFd> others_;
  int64_t num_missing_ = 0;  ///< Bytes that the other copies have not sent yet; below 0: one of them is ahead.
};

}  // namespace yoke::train::detail
