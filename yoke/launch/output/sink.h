// yoke/launch/output/sink.h -- the launcher's standard output or error: never blocks, never tears a line.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "yoke/base/file.h"

namespace yoke::launch {

/// Whole lines wait in a buffer until the reader takes them. A reader that has gone (EPIPE) or a full disk ends the
/// printing and nothing else. Standard output and error that are the same file must share one Sink, or the rest of a
/// half-written batch of one would follow a line of the other.
class Sink {
 public:
  /// Writes through a descriptor of its own where it can, so that O_NONBLOCK does not reach the user's shell.
  explicit Sink(int fd);

  bool is_terminal() const { return is_terminal_; }
  bool has_reader() const { return has_reader_; }  ///< A pipe or a socket.
  bool is_same_file_as(int fd) const;

  /// The end of the buffer; only whole lines may be appended.
  std::string& lines() { return lines_; }

  /// Keeps `text` visible as the last line until it is replaced; empty: none. Not while this process is in the
  /// background of the terminal, where a shell has its prompt on that line. REQUIRES: is_terminal().
  void show_progress(std::string_view text);
  /// Takes that line away, or shows it again: before this process is stopped, and afterwards.
  void hide_progress(bool hidden);

  /// Writes what can be written without waiting.
  void flush();

  bool is_waiting() const { return !is_closed_ && written_ < batch_.size(); }  ///< For the reader: poll for POLLOUT.
  bool is_full() const { return lines_.size() + batch_.size() - written_ > kMaxBuffered; }
  int fd() const { return fd_; }

 private:
  static constexpr size_t kMaxBuffered = 1 << 20;
  ssize_t write_some(std::string_view bytes) const;
  void next_batch();

  int fd_ = -1;
  UniqueFd own_;  ///< Holds fd_ if it was reopened.
  enum class Way { kBlocking, kNonblocking, kSocket } way_ = Way::kBlocking;
  bool is_terminal_ = false;
  bool has_reader_ = false;
  bool is_closed_ = false;
  std::string lines_;  ///< Not yet being written.
  std::string batch_;  ///< Being written, from written_ on.
  size_t written_ = 0;
  std::string progress_;
  bool progress_changed_ = false;
  bool progress_is_hidden_ = false;
  bool progress_is_shown_ = false;
};

}  // namespace yoke::launch
