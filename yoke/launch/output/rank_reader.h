// yoke/launch/output/rank_reader.h -- reads what the ranks of this node print: into log files, and on to whoever shows
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/loop/event_loop.h"
#include "yoke/launch/output/line_assembler.h"
#include "yoke/launch/output/sink.h"

namespace yoke::launch {

/// Lines that have one of the texts, of several ranks, in one file.
struct LineFilter {
  std::vector<std::string> texts;
  Sink* file = nullptr;  ///< From RankReader::add_log; null: none.
};

/// One of a rank's two streams, as its reader has it.
struct StreamSource {
  UniqueFd pipe;                 ///< The read end; none: the rank writes elsewhere.
  Sink* copy = nullptr;          ///< From RankReader::add_log, for the bytes as they come; null: no copy.
  LineFilter* filter = nullptr;  ///< Outlives the stream.
  std::string filter_prefix;     ///< Of lines in the filter's file.
};

/// To whom it goes.
struct OutputTaker {
  std::function<bool(bool is_err)> has_room;
  /// `bytes`: nothing at the end of the stream.
  std::function<void(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes)> take;
  std::function<void(const std::string& line)> complain;  ///< A log that cannot be written, or again.
};

class RankReader {
 public:
  explicit RankReader(OutputTaker taker);

  /// A file that streams are copied into, until settle_logs().
  Sink& add_log(const std::string& path);
  /// Once all streams have ended: tries again to write what logs lack, and forgets them. Returns what is missing, in
  /// lines for the user.
  std::vector<std::string> settle_logs();

  void add(int64_t rank, bool is_err, StreamSource source);
  void add_to(WaitSet& waits);

  /// Reads what is ready, and tries logs again that could not be written. Once `writers_are_gone`, an empty pipe has
  /// ended, even if a process that cannot be killed still holds it.
  void read(bool writers_are_gone);

  bool is_finished() const { return streams_.empty(); }
  bool can_read() const;  ///< Some stream has not ended, and there is room for it.

 private:
  struct Stream {
    int64_t rank;
    bool is_err;
    StreamSource source;
    bool is_ready = false;
    LineAssembler lines{""};  ///< For the filter alone.
  };
  void read(Stream& stream, bool writers_are_gone);
  void write_log(Sink& log, std::string_view bytes);
  void filter(Stream& stream, const std::optional<std::string_view>& bytes);

  OutputTaker taker_;
  std::vector<std::unique_ptr<Sink>> logs_;
  std::vector<Stream> streams_;
  std::string buffer_;
};

}  // namespace yoke::launch
