// yoke/base/file.h -- descriptors that close themselves, and files that are written whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace yoke {

/// Owns a file descriptor; -1 is none. Move-only.
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

/// Both ends of a pipe, close-on-exec. Errors: kUnavailable when out of descriptors.
struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};
Pipe make_pipe();

/// The whole file. Errors: as errno says, with the path.
std::string read_file(const std::filesystem::path& path);

/// Opens a file that somebody else may have replaced by anything: never waits for the writer of a FIFO, reads no device
/// and follows no symbolic link. Errors: as errno says, with the path; kDataLoss when it is no regular file.
UniqueFd open_regular_file(const std::filesystem::path& path);

/// The whole of such a file. Errors: those of open_regular_file; kDataLoss when it is longer than `max_bytes`.
std::string read_regular_file(const std::filesystem::path& path, size_t max_bytes);

/// Writes all of `bytes` to `fd`, through short writes and EINTR. `what` names the target in errors.
void write_all(int fd, std::span<const std::byte> bytes, const std::string& what);

/// Replaces `path` by what `write` writes, or leaves it as it was: a temporary file in the same folder, fsync, rename,
/// fsync of the folder. After SIGKILL or a power cut `path` is the old file or the new one, never a part of one; a
/// `.NAME.*.tmp` may stay behind.
/// Errors  whatever `write` throws; as errno says (a full disk is kUnavailable), with the path. The temporary is
/// removed.
void replace_file(const std::filesystem::path& path, const std::function<void(int fd)>& write);

/// Reading a whole file by mapping it: pages come on demand and are shared between ranks.
/// Errors  as errno says, with the path; kDataLoss when it is no regular file. A file cut short while mapped raises
/// SIGBUS on access: do not map what others write.
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
