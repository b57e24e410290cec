#include "yoke/keep/container_log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::keep {
namespace {

std::string folder_for_logs(const Environment& environment) {
  auto folder = environment.value_or("TMPDIR", "");
  return folder.starts_with('/') ? folder : "/var/tmp";
}

UniqueFd unnamed_file(const Environment& environment) {
  auto path = folder_for_logs(environment) + "/.yoke-log-XXXXXX";
  UniqueFd file(mkostemp(path.data(), O_CLOEXEC));
  if (!file) throw system_error(errno, "making a file for the container's output, " + path);
  unlink(path.c_str());
  return file;
}

std::string read_at(int file, int64_t begin, int64_t num_bytes) {
  std::string text(static_cast<size_t>(num_bytes), '\0');
  size_t size = 0;
  for (ssize_t count = 0; size < text.size(); size += static_cast<size_t>(count)) {
    count = pread(file, text.data() + size, text.size() - size, begin + static_cast<int64_t>(size));
    if (count <= 0) break;
  }
  text.resize(size);
  return text;
}

int64_t size_of(int file) {
  struct stat info = {};
  return fstat(file, &info) == 0 ? info.st_size : 0;
}

}  // namespace

ContainerLog::ContainerLog(UniqueFd source, const Environment& environment, int64_t most_bytes)
    : source_(std::move(source)), file_(unnamed_file(environment)), most_bytes_(most_bytes) {
  fcntl(source_.value(), F_SETFL, O_NONBLOCK);
  if (reserve()) return;
  throw Error(ErrorCode::kUnavailable,
              "the disk of {} is full, and the output of a container in the background is kept there; free some space, "
              "or set TMPDIR to another folder",
              printable(folder_for_logs(environment)));
}

/// Returns false if the disk is full. Some file systems cannot reserve.
bool ContainerLog::reserve() const {
  constexpr int64_t kReserved = 1 << 20;
  if (fallocate(file_.value(), FALLOC_FL_KEEP_SIZE, 0, std::min(kReserved, most_bytes_)) == 0) return true;
  return errno != ENOSPC && errno != EDQUOT;
}

void ContainerLog::copy() {
  char buffer[65'536];
  for (int i = 0; i < 64 && source_; ++i) {  // others wait for the caller, too
    const auto count = read(source_.value(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return source_.reset();
    const std::string_view text(buffer, static_cast<size_t>(count));
    if (size_ + count > most_bytes_) keep_last(most_bytes_ / 2);
    const auto num_written = append(text);
    if (num_written == text.size()) continue;
    // The disk is full. The newest lines are worth more than the first ones; what does not fit even so is lost, and the
    // program goes on.
    keep_last(size_ / 2, "[yoke] the disk was full, so older output is lost\n");
    append(text.substr(num_written));
  }
}

size_t ContainerLog::append(std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const auto written = pwrite(file_.value(), text.data() + done, text.size() - done, size_);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<size_t>(written);
    size_ += written;
  }
  return done;
}

void ContainerLog::keep_last(int64_t num_bytes, const std::string& before) {
  const auto rest = before + tail(num_bytes);
  size_ = 0;
  append(rest);  // into the space that the file has already
  [[maybe_unused]] const auto is_cut = ftruncate(file_.value(), size_);
  reserve();
}

std::string ContainerLog::tail(int64_t most_bytes) const {
  const auto begin = std::max<int64_t>(0, size_ - most_bytes);
  return read_at(file_.value(), begin, size_ - begin);
}

void copy_log(int file, int out, int end, bool follows) {
  constexpr int kPauseMs = 100;
  constexpr int64_t kStep = 1 << 20;
  int64_t begin = 0;
  for (bool is_last = !follows;;) {
    const auto size = size_of(file);
    if (size < begin) begin = size;  // its first half was dropped
    while (begin < size) {
      const auto text = read_at(file, begin, std::min(kStep, size - begin));
      if (text.empty()) break;
      write_all(out, text, "standard output");
      begin += static_cast<int64_t>(text.size());
    }
    if (is_last) return;
    pollfd news{end, POLLIN, 0};
    char byte = 0;
    if (poll(&news, 1, kPauseMs) > 0) is_last = recv(end, &byte, 1, MSG_DONTWAIT) == 0;
  }
}

}  // namespace yoke::keep
