#include "yoke/launch/output/sink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "yoke/base/terminal.h"

namespace yoke::launch {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

/// At most `columns` characters, not counting colours; what follows is cut, or the terminal would wrap and a single
/// "\r" no longer clear it.
std::string fit(std::string_view text, size_t columns) {
  std::string result;
  size_t width = 0;
  bool in_escape = false, has_escape = false;
  for (const char c : text) {
    if (c == '\x1b') in_escape = has_escape = true;
    const bool is_continuation = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    if (!in_escape && !is_continuation && ++width > columns) break;
    result.push_back(c);
    if (in_escape && ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))) in_escape = false;
  }
  if (has_escape) result += "\x1b[0m";
  return result;
}

size_t columns_of(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
}

}  // namespace

Sink::Sink(int fd) : fd_(fd), is_terminal_(isatty(fd) == 1) {
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    is_closed_ = true;  // started with `>&-`
    return;
  }
  has_reader_ = S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
  if (S_ISSOCK(status.st_mode)) {
    way_ = Way::kSocket;
  } else if (S_ISFIFO(status.st_mode) || is_terminal_) {
    // May be refused: a terminal that belongs to another user, after su. Then each write is preceded by a poll.
    own_ = UniqueFd(
        open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_APPEND | O_CLOEXEC));
    if (own_) {
      fd_ = own_.value();
      way_ = Way::kNonblocking;
    }
  }
}

bool Sink::is_same_file_as(int fd) const {
  struct stat ours {};
  struct stat other {};
  return fstat(fd_, &ours) == 0 && fstat(fd, &other) == 0 && ours.st_dev == other.st_dev && ours.st_ino == other.st_ino;
}

void Sink::show_progress(std::string_view text) {
  if (text == progress_) return;
  progress_ = text;
  progress_changed_ = true;
}

void Sink::hide_progress(bool hidden) {
  progress_is_hidden_ = hidden;
  progress_changed_ = true;
}

void Sink::next_batch() {
  batch_.clear();
  written_ = 0;
  if (lines_.empty() && !progress_changed_) return;
  const bool wants_progress = !progress_.empty() && !progress_is_hidden_;
  // In the background the last line is the shell's, even if ours was there when somebody stopped us by SIGSTOP.
  const bool may_paint = (progress_is_shown_ || wants_progress) && is_in_foreground(fd_);
  if (progress_is_shown_ && may_paint) batch_ = kClearLine;
  batch_ += std::exchange(lines_, {});
  progress_is_shown_ = wants_progress && may_paint;
  if (progress_is_shown_) batch_ += fit(progress_, columns_of(fd_));
  progress_changed_ = false;
}

ssize_t Sink::write_some(std::string_view bytes) const {
  if (way_ == Way::kSocket) return send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (way_ == Way::kBlocking) {  // files and /dev/null are always ready
    pollfd ready{fd_, POLLOUT, 0};
    if (poll(&ready, 1, 0) == 0) {
      errno = EAGAIN;
      return -1;
    }
    if (is_terminal_) bytes = bytes.substr(0, 512);
  }
  return write(fd_, bytes.data(), bytes.size());
}

void Sink::flush() {
  while (!is_closed_) {
    if (written_ == batch_.size()) next_batch();
    if (batch_.empty()) return;
    const ssize_t count = write_some(std::string_view(batch_).substr(written_));
    if (count >= 0) {
      written_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      is_closed_ = true;
    }
  }
  lines_.clear();
  batch_.clear();
  written_ = 0;
}

}  // namespace yoke::launch
