// yoke/device/process/folder.h -- /proc/PID, held open: all that is read through it is of one process, and nothing once
// that process is gone, even when its PID belongs to another one by then.
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

  /// The first `limit_bytes` of a file; nullopt: no permission, or the process is gone.
  std::optional<std::string> read(const char* file, size_t limit_bytes) const;

 private:
  UniqueFd fd_;
};

}  // namespace yoke::device
