// yoke/device/process/folder.h -- holds /proc/PID open. All reads through it are about the same process. They fail
// after that process has ended, even if its PID was reused.
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

  /// The effective user of the process.
  std::optional<int64_t> owner() const;

  /// The first `limit_bytes` of a file; nullopt without permission, or if the process has ended.
  std::optional<std::string> read(const char* file, size_t limit_bytes) const;

 private:
  UniqueFd fd_;
};

}  // namespace yoke::device
