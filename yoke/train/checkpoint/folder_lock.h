// yoke/train/checkpoint/folder_lock.h -- a folder that belongs to one run.
#pragma once

#include <filesystem>

#include "yoke/base/file.h"

namespace yoke::train {

/// Marks a folder as one run's until destroyed or the process is gone, however it ends. Move-only. Rank 0 holds it.
///
/// The mark is flock on `.yoke-lock` in the folder, which stays behind, harmless. Children made by fork without exec
/// keep it alive. Between hosts it holds where the file system carries flock (NFS since Linux 2.6.12; Lustre with
/// -o flock).
class FolderLock {
 public:
  /// Makes the folder if need be.
  /// Errors  kUnavailable when another run holds it, with the folder and that run's process.
  explicit FolderLock(const std::filesystem::path& folder);

 private:
  UniqueFd fd_;
};

}  // namespace yoke::train
