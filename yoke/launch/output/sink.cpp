#include "yoke/launch/output/sink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "yoke/base/terminal.h"

namespace yoke::launch {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

/// Returns the first `columns` characters, not counting colours. ("\r" would not erase a longer line, which wraps.)
std::string cut_to(std::string_view text, size_t columns) {
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

Sink::Sink(int fd, std::string name) : fd_(fd), is_terminal_(isatty(fd) == 1), trouble_(std::move(name)) {
  struct stat status {};
  fstat(fd, &status);
  has_reader_ = S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
  if (S_ISREG(status.st_mode)) {
    way_ = Way::kFile;
  } else if (S_ISSOCK(status.st_mode)) {
    way_ = Way::kSocket;
  } else if (S_ISFIFO(status.st_mode) || is_terminal_) {
    // The kernel may refuse to open the file again: after su the terminal belongs to a different user. In that case
    // this process polls before each write.
    own_ = UniqueFd(
        open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_APPEND | O_CLOEXEC));
    if (own_) {
      fd_ = own_.value();
      way_ = Way::kNonblocking;
    }
  }
}

Sink::Sink(UniqueFd file, std::string name)
    : fd_(file.value()), own_(std::move(file)), way_(Way::kFile), trouble_(std::move(name)) {}

bool Sink::is_same_file_as(int fd) const {
  struct stat ours {};
  struct stat other {};
  // main() replaces a closed standard output by /dev/null opened for reading, and a closed standard error by /dev/null
  // opened for writing. These must count as different files. A terminal may be open for reading and writing, or only
  // for writing if this class reopened it. So only writability is compared.
  const auto is_writable = [](int of) { return (fcntl(of, F_GETFL) & O_ACCMODE) != O_RDONLY; };
  return fstat(fd_, &ours) == 0 && fstat(fd, &other) == 0 && ours.st_dev == other.st_dev &&
         ours.st_ino == other.st_ino && is_writable(fd_) == is_writable(fd);
}

void Sink::show_last_line(std::string_view text, Width width) {
  if (text == progress_) return;
  progress_ = text;
  progress_width_ = width;
  progress_changed_ = true;
}

bool Sink::continue_prompt(std::string_view prompt) {
  progress_stays_ = progress_is_shown_ && !progress_changed_ && prompt == progress_ && is_in_foreground(fd_);
  return progress_stays_;
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
  // In the background, the last line belongs to the shell, even if this process painted it before it was stopped.
  const bool may_paint = (progress_is_shown_ || wants_progress) && is_in_foreground(fd_);
  const bool stays = std::exchange(progress_stays_, false);
  if (progress_is_shown_ && may_paint && !stays) batch_ = kClearLine;
  batch_ += std::exchange(lines_, {});
  progress_is_shown_ = wants_progress && may_paint;
  if (progress_is_shown_) batch_ += progress_width_ == Width::kCut ? cut_to(progress_, columns_of(fd_)) : progress_;
  progress_changed_ = false;
}

ssize_t Sink::write_some(std::string_view bytes) const {
  if (way_ == Way::kSocket) return send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (way_ == Way::kBlocking) {  // /dev/null is always ready
    pollfd ready{fd_, POLLOUT, 0};
    if (poll(&ready, 1, 0) == 0) {
      errno = EAGAIN;
      return -1;
    }
    if (is_terminal_) bytes = bytes.substr(0, 512);
  }
  return write(fd_, bytes.data(), bytes.size());
}

/// Whether the error means that a pipe's or socket's reader has closed it, or that the terminal has hung up.
bool Sink::is_end_of_reader(int error_number) const {
  return error_number == EPIPE || error_number == ECONNRESET || (error_number == EIO && is_terminal_);
}

void Sink::flush() {
  if (trouble_.may_try(WriteTrouble::Clock::now())) write_lines();
  if (trouble_.is_on()) drop_excess();
}

void Sink::write_lines() {
  while (!is_closed_) {
    if (num_unwritten() == 0) next_batch();
    if (batch_.empty()) return trouble_.on_all_written();
    const ssize_t count = write_some(std::string_view(batch_).substr(written_));
    if (count >= 0) {
      written_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      return trouble_.on_not_ready(WriteTrouble::Clock::now());
    } else if (is_end_of_reader(errno)) {
      is_closed_ = true;
      trouble_.on_given_up();
    } else if (errno != EINTR) {
      return trouble_.on_failure(errno, WriteTrouble::Clock::now());
    }
  }
  drop_all();
}

/// Drops the newest lines if the buffer has too many.
void Sink::drop_excess() {
  if (lines_.size() + num_unwritten() <= kMaxBuffered) return;
  const auto room = kMaxBuffered - std::min(num_unwritten(), kMaxBuffered);
  const auto end = room == 0 ? lines_.npos : lines_.rfind('\n', room - 1);
  const auto num_kept = end == lines_.npos ? 0 : end + 1;
  trouble_.on_lost(std::string_view(lines_).substr(num_kept));
  lines_.resize(num_kept);
}

void Sink::drop_all() {
  lines_.clear();
  batch_.clear();
  written_ = 0;
}

void Sink::settle() {
  if (trouble_.is_on()) write_lines();
  if (trouble_.is_on()) {
    trouble_.on_lost(std::string_view(batch_).substr(written_));
    trouble_.on_lost(lines_);
    drop_all();
    is_closed_ = true;
  }
  trouble_.on_given_up();
}

}  // namespace yoke::launch
