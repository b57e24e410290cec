// yoke/launch/output.h -- what the ranks print, line by line, on the launcher's standard output and error, and in
// files.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/line_assembler.h"
#include "yoke/launch/sink.h"

namespace yoke::launch {

/// Lines that have one of the texts, of several ranks, in one file.
struct LineFilter {
  std::vector<std::string> texts;
  UniqueFd file;
};

/// One of a rank's two streams, as its reader has it.
struct StreamSource {
  UniqueFd pipe;                 ///< The read end; none: the rank writes elsewhere.
  UniqueFd copy;                 ///< A file for the bytes as they come; none: no copy.
  LineFilter* filter = nullptr;  ///< Outlives the stream.
};

/// Owned by the supervisor's loop: it polls what add_polls() asks for and hands the answers to read_and_write().
class Output {
 public:
  /// `colour`: prefixes in colour on terminals.
  explicit Output(bool colour);

  /// Forgets what a rank of this number printed before.
  void add_rank(int64_t rank, const std::string& prefix, StreamSource out, StreamSource err);

  /// In a forked child that is not to read.
  void close_streams() { streams_.clear(); }

  /// A line of the launcher itself, on standard error.
  void say(const std::string& line);

  /// The last line of a terminal while no progress bar of a rank is there; empty: none.
  void show_status(const std::string& text);
  bool has_terminal() const { return err_->is_terminal(); }

  void add_polls(std::vector<pollfd>& polls);

  /// REQUIRES: the entries that add_polls() appended, from `polls[first]` on. Once `writers_are_gone`, an empty pipe is
  /// an ended one, even if a process that cannot be killed still holds it.
  void read_and_write(const std::vector<pollfd>& polls, size_t first, bool writers_are_gone);

  bool is_read() const;      ///< All streams have ended.
  bool is_finished() const;  ///< And all of it is written, or nobody wants it.
  bool can_read() const;     ///< Some stream has not ended, and there is room for it.
  void flush();

  /// The last lines that a rank printed, if so much was printed after them that they are out of sight.
  std::vector<std::string> lost_lines(int64_t rank) const;

 private:
  struct Stream {
    int64_t rank;
    StreamSource source;
    LineAssembler lines;
    std::string plain_prefix;  ///< Without colours.
    Sink* sink;
  };
  /// What a rank printed last.
  struct Tail {
    std::deque<std::string> lines;
    int64_t last_number = 0;  ///< Of its last line among all lines.
  };
  void add_stream(int64_t rank, const std::string& prefix, StreamSource source, Sink& sink);
  void read(Stream& stream, bool writers_are_gone);
  void copy(Stream& stream, std::string_view bytes);
  void note_lines(const Stream& stream, std::string_view lines);
  void show_progress(const Stream& stream);

  std::unique_ptr<Sink> out_, err_own_;
  Sink* err_;  ///< out_ when both are one file.
  bool colour_;
  std::vector<Stream> streams_;
  std::map<int64_t, Tail> tails_;
  int64_t num_lines_ = 0;
  static constexpr int64_t kNoRank = INT64_MAX;
  int64_t progress_rank_ = kNoRank;
  std::string status_;
  std::string buffer_;
};

}  // namespace yoke::launch
