// yoke/launch/output/sink.h -- where lines go, the launcher's standard output, its standard error or a log: never
// blocks, never tears a line, and loses none without saying so.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/output/write_trouble.h"

namespace yoke::launch {

/// Whole lines wait in a buffer until the reader takes them. A reader that has gone (EPIPE) ends the printing and
/// nothing else. Where writing fails, as on a full disk, the lines stay in the buffer, and those for which it is too
/// small are counted; it is tried again now and then. Standard output and error that are the same file must share one
/// Sink, or the rest of a half-written batch of one would follow a line of the other.
class Sink {
 public:
  /// `name`: "standard output", for messages. Writes through a descriptor of its own where it can, so that O_NONBLOCK
  /// does not reach the user's shell.
  Sink(int fd, std::string name);
  /// A log. Its lines need not be whole.
  Sink(UniqueFd file, std::string name);

  bool is_terminal() const { return is_terminal_; }
  bool has_reader() const { return has_reader_; }  ///< A pipe or a socket.
  bool is_same_file_as(int fd) const;

  /// The end of the buffer; only whole lines may be appended.
  std::string& lines() { return lines_; }

  /// Keeps `text` visible as the last line until it is replaced; empty: none. Not while this process is in the
  /// background of the terminal, where a shell has its prompt on that line. REQUIRES: is_terminal().
  void show_progress(std::string_view text) { show_last_line(text, Width::kCut); }
  /// The same for a text that is no line yet, and whose end is what matters: it is not cut to the terminal's width.
  void show_prompt(std::string_view text) { show_last_line(text, Width::kWhole); }
  /// Whether `prompt` is there, and stays: what is appended to lines() next is written behind it. REQUIRES: lines() has
  /// nothing else.
  bool continue_prompt(std::string_view prompt);
  /// Takes that line away, or shows it again: before this process is stopped, and afterwards.
  void hide_progress(bool hidden);

  /// Writes what can be written without waiting.
  void flush();

  bool is_waiting() const { return !is_closed_ && !trouble_.is_on() && num_unwritten() > 0; }  ///< Poll for POLLOUT.
  /// While writing fails it is not: a full disk slows no rank down.
  bool is_full() const { return !trouble_.is_on() && lines_.size() + num_unwritten() > kMaxBuffered; }
  /// When to call flush() although nothing happened.
  const std::optional<WriteTrouble::Time>& next_time() const { return trouble_.next_try(); }

  /// Tries once more if writing fails; what cannot be written then is missing.
  void settle();
  bool has_lost() const { return trouble_.has_lost(); }
  /// What the user should know of the writing, since the last call.
  std::vector<std::string> take_news() { return trouble_.take_news(); }
  int fd() const { return fd_; }

 private:
  static constexpr size_t kMaxBuffered = 1 << 20;
  enum class Width { kCut, kWhole };
  void show_last_line(std::string_view text, Width width);
  ssize_t write_some(std::string_view bytes) const;
  bool is_end_of_reader(int error_number) const;
  size_t num_unwritten() const { return batch_.size() - written_; }  ///< Of the batch.
  void next_batch();
  void write_lines();
  void drop_excess();
  void drop_all();

  int fd_ = -1;
  UniqueFd own_;  ///< Holds fd_ unless it is a standard stream as it was.
  enum class Way { kBlocking, kNonblocking, kSocket, kFile } way_ = Way::kBlocking;
  bool is_terminal_ = false;
  bool has_reader_ = false;
  bool is_closed_ = false;
  std::string lines_;  ///< Not yet being written.
  std::string batch_;  ///< Being written, from written_ on.
  size_t written_ = 0;
  WriteTrouble trouble_;
  std::string progress_;
  Width progress_width_ = Width::kCut;
  bool progress_changed_ = false;
  bool progress_is_hidden_ = false;
  bool progress_is_shown_ = false;
  bool progress_stays_ = false;  ///< Before the next line.
};

}  // namespace yoke::launch
