#include "yoke/train/data/detail/read_at.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "yoke/base/error.h"

namespace yoke::train::detail {

OpenFile open_file(const std::filesystem::path& path) {
  OpenFile file{path, UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0};
  struct stat status;
  if (!file.fd || fstat(file.fd.value(), &status) != 0) {
    throw system_error(errno, "opening " + path.string());
  }
  if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kDataLoss, "{} is not a regular file", path.string());
  file.size_bytes = status.st_size;
  return file;
}

void read_at(const OpenFile& file, int64_t offset, std::span<std::byte> to) {
  size_t done = 0;
  while (done < to.size()) {
    const auto count = pread(file.fd.value(), to.data() + done, to.size() - done, offset + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw system_error(errno,
                         fmt::format("reading {} at byte {}", file.path.string(), offset + static_cast<int64_t>(done)));
    }
    if (count == 0) {
      throw Error(ErrorCode::kDataLoss, "{} ends at byte {}, but {} bytes from byte {} on are needed",
                  file.path.string(), offset + static_cast<int64_t>(done), to.size(), offset);
    }
    done += static_cast<size_t>(count);
  }
}

}  // namespace yoke::train::detail
