// yoke/program/private_folder.h -- a folder for what the programs of a command write while they run.
#pragma once

#include <filesystem>
#include <string_view>

#include "yoke/base/file.h"

namespace yoke::program {

/// A new folder of this user alone, which the destructor removes with all that is in it.
///
/// This process holds a lock on the folder (flock). If it is killed, the kernel releases the lock, and the next
/// PrivateFolder in the same parent folder removes what was left.
class PrivateFolder {
 public:
  /// Makes `parent`/.yoke-PURPOSE-XXXXXX. Errors  as errno says: it cannot be made in `parent`.
  PrivateFolder(const std::filesystem::path& parent, std::string_view purpose);
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
};

}  // namespace yoke::program
