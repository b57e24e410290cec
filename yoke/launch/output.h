// yoke/launch/output.h -- what the ranks print, line by line, on the launcher's standard output and error.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/line_assembler.h"
#include "yoke/launch/sink.h"

namespace yoke::launch {

/// Owned by the supervisor's loop: it polls what add_polls() asks for and hands the answers to read_and_write().
class Output {
 public:
  /// `colour`: prefixes in colour on terminals.
  explicit Output(bool colour);

  /// Takes the read ends of a rank's two pipes.
  void add_rank(int64_t rank, const std::string& prefix, UniqueFd out, UniqueFd err);

  /// In a forked child that is not to read.
  void close_streams() { streams_.clear(); }

  /// A line of the launcher itself, on standard error.
  void say(const std::string& line);

  void add_polls(std::vector<pollfd>& polls);

  /// REQUIRES: the entries that add_polls() appended, from `polls[first]` on. Once `writers_are_gone`, an empty pipe is
  /// an ended one, even if a process that cannot be killed still holds it.
  void read_and_write(const std::vector<pollfd>& polls, size_t first, bool writers_are_gone);

  bool is_read() const;      ///< All streams have ended.
  bool is_finished() const;  ///< And all of it is written, or nobody wants it.
  bool can_read() const;     ///< Some stream has not ended, and there is room for it.
  void flush();

 private:
  struct Stream {
    int64_t rank;
    UniqueFd fd;
    LineAssembler lines;
    Sink* sink;
  };
  void add_stream(int64_t rank, const std::string& prefix, UniqueFd fd, Sink& sink);
  void read(Stream& stream, bool writers_are_gone);
  void show_progress(const Stream& stream);

  std::unique_ptr<Sink> out_, err_own_;
  Sink* err_;  ///< out_ when both are one file.
  bool colour_;
  std::vector<Stream> streams_;
  static constexpr int64_t kNoRank = INT64_MAX;
  int64_t progress_rank_ = kNoRank;
  std::string buffer_;
};

}  // namespace yoke::launch
