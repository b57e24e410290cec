#include "yoke/device/process/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

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
  if (!fd) return std::nullopt;
  std::string text;
  constexpr size_t kFirst = 4096;  // almost always enough
  while (text.size() < limit_bytes) {
    const auto before = text.size();
    text.resize(std::min(limit_bytes, std::max(kFirst, 2 * before)));
    ssize_t count = 0;
    do {
      count = ::read(fd.value(), text.data() + before, text.size() - before);
    } while (count < 0 && errno == EINTR);
    if (count < 0) return std::nullopt;
    text.resize(before + static_cast<size_t>(count));
    if (count == 0) break;
  }
  return text;
}

}  // namespace yoke::device
