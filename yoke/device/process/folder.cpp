#include "yoke/device/process/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "yoke/base/sysfs.h"

namespace yoke::device {

// O_PATH is needed with hidepid=1. There the folder of a different user's process cannot be opened for reading, but its
// owner can still be read.
ProcessFolder::ProcessFolder(int64_t pid, const std::filesystem::path& proc)
    : fd_(open(fmt::format("{}/{}", proc.native(), pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

std::optional<int64_t> ProcessFolder::owner() const {
  struct stat status {};
  if (fstat(fd_.value(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

std::optional<std::string> ProcessFolder::read(const char* file, size_t limit_bytes) const {
  const UniqueFd fd(openat(fd_.value(), file, O_RDONLY | O_CLOEXEC));
  return fd ? read_beginning(fd.value(), limit_bytes) : std::nullopt;
}

}  // namespace yoke::device
