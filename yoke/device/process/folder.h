// yoke/device/process/folder.h -- holds /proc/PID open. All reads through the folder are about the same process: they
// fail after the process has ended, even if its PID was reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "yoke/base/file.h"

namespace yoke::device {

class ProcessFolder {
 public:
  ProcessFolder(int64_t pid, const std::filesystem::path& proc);

  bool is_there() const { return static_cast<bool>(fd_); }

  /// Returns the effective user of the process.
  std::optional<int64_t> owner() const;

  /// Returns the first `limit_bytes` of a file, or nullopt without permission or if the process has ended.
  std::optional<std::string> read(const char* file, size_t limit_bytes) const;

 private:
  UniqueFd fd_;
};

}  // namespace yoke::device
