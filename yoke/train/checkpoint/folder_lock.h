// yoke/train/checkpoint/folder_lock.h -- reserves a folder for one run.
#pragma once

#include <filesystem>

#include "yoke/base/file.h"

namespace yoke::train {

/// Reserves a folder for one run until this object is destroyed or the process ends in any way. Move-only. Only rank 0
/// makes one.
///
/// The lock is flock on the file `.yoke-lock` in the folder. That file is never removed, which does no harm. Children
/// made by fork without exec keep the lock. The lock works between hosts if the file system supports flock (NFS since
/// Linux 2.6.12; Lustre with -o flock).
class FolderLock {
 public:
  /// Creates the folder if necessary.
  /// Errors  kUnavailable: another run holds the lock; the message names the folder and that run's process.
  explicit FolderLock(const std::filesystem::path& folder);

 private:
  UniqueFd fd_;
};

}  // namespace yoke::train
