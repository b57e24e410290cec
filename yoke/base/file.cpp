#include "yoke/base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>

#include "yoke/base/error.h"

namespace yoke {
namespace {

UniqueFd open_to_read(const std::filesystem::path& path, int flags = 0) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!fd && errno == ELOOP && (flags & O_NOFOLLOW) != 0) {
    throw Error(ErrorCode::kPermissionDenied,
                "{} is a symbolic link, and links are not followed here; put the file "
                "itself in its place",
                path.string());
  }
  if (!fd) throw system_error(errno, "reading " + path.string());
  return fd;
}

struct stat require_regular(const UniqueFd& fd, const std::filesystem::path& path) {
  struct stat status {};
  if (fstat(fd.value(), &status) != 0) throw system_error(errno, "reading " + path.string());
  if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kDataLoss, "{}: not a regular file", path.string());
  return status;
}

/// Reads to the end of the file; the size from fstat may be out of date.
std::string read_whole(const UniqueFd& fd, const std::filesystem::path& path, size_t max_bytes) {
  std::string text;
  char buffer[16384];
  while (true) {
    const ssize_t count = read(fd.value(), buffer, sizeof buffer);
    if (count == 0) return text;
    if (count > 0) {
      text.append(buffer, static_cast<size_t>(count));
    } else if (errno != EINTR) {
      throw system_error(errno, "reading " + path.string());
    }
    if (text.size() > max_bytes) {
      throw Error(ErrorCode::kDataLoss, "{}: longer than {} bytes", path.string(), max_bytes);
    }
  }
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

void UniqueFd::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool is_readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, 0) > 0;
}

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw system_error(errno, "making a pipe");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::string read_file(const std::filesystem::path& path) {
  return read_whole(open_to_read(path), path, std::numeric_limits<size_t>::max());
}

UniqueFd open_regular_file(const std::filesystem::path& path) {
  auto fd = open_to_read(path, O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
  require_regular(fd, path);
  return fd;
}

std::string read_regular_file(const std::filesystem::path& path, size_t max_bytes) {
  return read_whole(open_regular_file(path), path, max_bytes);
}

off_t begin_of_last_lines(int fd, int64_t count) {
  const off_t size = lseek(fd, 0, SEEK_END);
  if (count == 0) return size;
  char buffer[1 << 16];
  for (off_t end = size; end > 0;) {
    const auto begin = std::max<off_t>(0, end - static_cast<off_t>(sizeof buffer));
    const ssize_t num_read = pread(fd, buffer, static_cast<size_t>(end - begin), begin);
    for (ssize_t i = num_read - 1; i >= 0; --i) {
      const bool ends_another_line = buffer[i] == '\n' && begin + i + 1 < size;
      if (ends_another_line && --count == 0) return begin + i + 1;
    }
    end = begin;
  }
  return 0;
}

void write_all(int fd, std::span<const std::byte> bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (errno != EINTR) {
      throw system_error(errno, "writing " + what);
    }
  }
}

void replace_file(const std::filesystem::path& path, const std::function<void(int fd)>& write, mode_t mode) {
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::string temporary = (folder / ("." + path.filename().string() + ".XXXXXX.tmp")).string();
  UniqueFd fd(mkostemps(temporary.data(), 4, O_CLOEXEC));
  if (!fd) throw system_error(errno, "writing " + path.string());
  try {
    write(fd.value());
    // mkostemps has created the file with mode 0600.
    const mode_t mask = umask(0);
    umask(mask);
    if (fchmod(fd.value(), mode & ~mask) != 0 || fsync(fd.value()) != 0 || close(fd.release()) != 0 ||
        rename(temporary.c_str(), path.c_str()) != 0) {
      throw system_error(errno, "writing " + path.string());
    }
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  // The rename is done, but without this fsync a power failure might undo it.
  if (const UniqueFd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); directory) {
    fsync(directory.value());
  }
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const auto fd = open_to_read(path, O_NONBLOCK);  // opening a FIFO would wait for a writer
  const auto status = require_regular(fd, path);
  if (status.st_size == 0) return;
  const auto size = static_cast<size_t>(status.st_size);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.value(), 0);
  if (address == MAP_FAILED) throw system_error(errno, "mapping " + path.string());
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace yoke
