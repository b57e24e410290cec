// yoke/launch/output/rank_reader.h -- reads what the ranks of this node print: into log files, and on to whoever shows
// it.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/output/line_assembler.h"

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
  std::string filter_prefix;     ///< Of lines in the filter's file.
};

/// To whom it goes.
struct OutputTaker {
  std::function<bool(bool is_err)> has_room;
  /// `bytes`: nothing at the end of the stream.
  std::function<void(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes)> take;
  std::function<void(const std::string& line)> complain;  ///< A log that can no longer be written.
};

class RankReader {
 public:
  explicit RankReader(OutputTaker taker);

  void add(int64_t rank, bool is_err, StreamSource source);
  void add_polls(std::vector<pollfd>& polls);

  /// REQUIRES: the entries that add_polls() appended, from `polls[first]` on. Once `writers_are_gone`, an empty pipe is
  /// an ended one, even if a process that cannot be killed still holds it.
  void read(const std::vector<pollfd>& polls, size_t first, bool writers_are_gone);

  bool is_finished() const { return streams_.empty(); }
  bool can_read() const;  ///< Some stream has not ended, and there is room for it.

 private:
  struct Stream {
    int64_t rank;
    bool is_err;
    StreamSource source;
    LineAssembler lines{""};  ///< For the filter alone.
  };
  void read(Stream& stream, bool writers_are_gone);
  void copy(Stream& stream, std::string_view bytes);
  void filter(Stream& stream, const std::optional<std::string_view>& bytes);

  OutputTaker taker_;
  std::vector<Stream> streams_;
  std::string buffer_;
};

}  // namespace yoke::launch
