// yoke/base/file.h -- owned descriptors, and files that are written completely or not at all.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace yoke {

/// Owns a file descriptor; -1 if it owns none. Move-only.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { reset(); }

  int value() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

/// Whether a read from `fd` would not block, because something has arrived or nothing more can.
bool is_readable(int fd);

/// Both ends of a pipe, close-on-exec. Errors  kUnavailable: out of descriptors.
struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};
Pipe make_pipe();

/// Reads the whole file. Errors  as errno says, with the path.
std::string read_file(const std::filesystem::path& path);

/// Opens a file that a different user may have replaced. Never waits for the writer of a FIFO, opens no device and
/// follows no symbolic link. Errors  as errno says, with the path; kDataLoss if it is not a regular file.
UniqueFd open_regular_file(const std::filesystem::path& path);

/// Reads a whole file by open_regular_file(). Errors  those of that function; kDataLoss if it is over `max_bytes`.
std::string read_regular_file(const std::filesystem::path& path, size_t max_bytes);

/// Returns where the last `count` lines of a file begin. A last line without an end counts, too.
off_t begin_of_last_lines(int fd, int64_t count);

/// Writes all of `bytes` to `fd`; continues after short writes and EINTR. `what` names the target in errors.
/// Errors  as errno says.
void write_all(int fd, std::span<const std::byte> bytes, const std::string& what);
inline void write_all(int fd, std::string_view text, const std::string& what) {
  write_all(fd, std::as_bytes(std::span(text)), what);
}

/// Replaces `path` atomically. `write` gets the descriptor of a temporary file in the same folder. Then the file is
/// fsynced and renamed, and the folder is fsynced. After SIGKILL or a power failure `path` is either the old file or
/// the complete new one, with `mode` less the umask; a file `.NAME.*.tmp` may remain.
/// Errors  those of `write`; as errno says (kUnavailable for a full disk), with the path. After an error `path` is
/// unchanged, and the temporary file is removed.
void replace_file(const std::filesystem::path& path, const std::function<void(int fd)>& write, mode_t mode = 0666);
inline void replace_file(const std::filesystem::path& path, std::string_view text, mode_t mode = 0666) {
  replace_file(
      path, [&](int fd) { write_all(fd, text, path.string()); }, mode);
}

/// A file mapped for reading. Its pages are loaded on demand and shared between ranks.
/// Errors  as errno says, with the path; kDataLoss if it is not a regular file. If the file is truncated while it is
/// mapped, access raises SIGBUS, so do not map files that other processes write.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace yoke
