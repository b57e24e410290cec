// yoke/keep/fuse_helpers.h -- the processes by which Apptainer serves a container's file systems.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

#include "yoke/base/file.h"

namespace yoke::keep {

/// Without root, Apptainer mounts images and extensions by programs such as squashfuse_ll, which it ends when the
/// container has ended. If Apptainer itself was killed, they would stay for ever.
class FuseHelpers {
 public:
  FuseHelpers() = default;
  /// Finds those of a container: children of the process that started its first program. REQUIRES: that one waits.
  explicit FuseHelpers(pid_t first_program);

  /// Ends those that are left when the container has ended, after Apptainer has had `patience` for it.
  void end(std::chrono::milliseconds patience);

 private:
  std::vector<UniqueFd> processes_;  ///< pidfds
};

}  // namespace yoke::keep
