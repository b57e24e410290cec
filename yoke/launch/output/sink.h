// yoke/launch/output/sink.h -- writes lines to standard output, standard error or a log. Never blocks, never splits a
// line, and reports each line that it loses.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/output/write_trouble.h"

namespace yoke::launch {

/// Whole lines wait in a buffer until the reader takes them. If the reader has closed its end (EPIPE), later lines are
/// dropped and the job goes on. If writing fails, as on a full disk, lines stay in the buffer, lines that do not fit
/// are counted as lost, and writing is retried from time to time. If standard output and error are the same file, they
/// must share one Sink. Otherwise one Sink could write after the first part of another Sink's line.
class Sink {
 public:
  /// `name` is for messages, such as "standard output". Writes through a newly opened descriptor if possible, so that
  /// O_NONBLOCK does not affect the user's shell.
  Sink(int fd, std::string name);
  /// Writes to a log. Its lines need not be whole.
  Sink(UniqueFd file, std::string name);

  bool is_terminal() const { return is_terminal_; }
  bool has_reader() const { return has_reader_; }  ///< Whether the output is a pipe or a socket.
  bool is_same_file_as(int fd) const;

  /// Returns the buffer. The caller may append whole lines only.
  std::string& lines() { return lines_; }

  /// Shows `text` as the terminal's last line until it is replaced; an empty text removes it. Shows nothing while this
  /// process is in the background, because the shell has its prompt on that line. REQUIRES: is_terminal().
  void show_progress(std::string_view text) { show_last_line(text, Width::kCut); }
  /// Like show_progress(), for an unfinished line. It is not cut to the terminal's width, because its end is important.
  void show_prompt(std::string_view text) { show_last_line(text, Width::kWhole); }
  /// Leaves `prompt` on the terminal, and writes the next text in lines() behind it. Returns whether the prompt is
  /// there. REQUIRES: lines() is empty.
  bool continue_prompt(std::string_view prompt);
  /// With true, erases the progress bar or prompt before Ctrl-Z stops this process. With false, shows it again.
  void hide_progress(bool hidden);

  /// Whether the reader has closed its end. Output is dropped from then on.
  bool is_closed() const { return is_closed_; }

  /// Writes what can be written without blocking.
  void flush();

  /// Whether output waits for its reader. If so, poll for POLLOUT.
  bool is_waiting() const { return !is_closed_ && !trouble_.is_on() && num_unwritten() > 0; }
  /// Whether the buffer is full. While writing fails it does not count as full, so that a full disk does not block
  /// ranks.
  bool is_full() const { return !trouble_.is_on() && lines_.size() + num_unwritten() > kMaxBuffered; }
  /// When flush() must be called if no event comes before.
  const std::optional<WriteTrouble::Time>& next_time() const { return trouble_.next_try(); }

  /// If writing has failed, tries once more. Output that still cannot be written counts as lost.
  void settle();
  bool has_lost() const { return trouble_.has_lost(); }
  /// Returns the messages for the user about the output since the last call.
  std::vector<std::string> take_news() { return trouble_.take_news(); }
  int fd() const { return fd_; }

 private:
  static constexpr size_t kMaxBuffered = 1 << 20;
  enum class Width { kCut, kWhole };
  void show_last_line(std::string_view text, Width width);
  ssize_t write_some(std::string_view bytes) const;
  bool is_end_of_reader(int error_number) const;
  size_t num_unwritten() const { return batch_.size() - written_; }  ///< The number of unwritten bytes in the batch.
  void next_batch();
  void write_lines();
  void drop_excess();
  void drop_all();

  int fd_ = -1;
  UniqueFd own_;  ///< Owns fd_, unless that is a standard stream.
  enum class Way { kBlocking, kNonblocking, kSocket, kFile } way_ = Way::kBlocking;
  bool is_terminal_ = false;
  bool has_reader_ = false;
  bool is_closed_ = false;
  std::string lines_;  ///< Lines that were not written yet.
  std::string batch_;  ///< Bytes that are being written. The first `written_` bytes are done.
  size_t written_ = 0;
  WriteTrouble trouble_;
  std::string progress_;
  Width progress_width_ = Width::kCut;
  bool progress_changed_ = false;
  bool progress_is_hidden_ = false;
  bool progress_is_shown_ = false;
  bool progress_stays_ = false;  ///< The prompt is not erased, and the next lines follow it.
};

}  // namespace yoke::launch
