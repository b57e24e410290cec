// yoke/launch/output/rank_reader.h -- reads the output of this node's ranks, and passes it to log files and to an
// observer.
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
#include "yoke/launch/output/log_files.h"
#include "yoke/launch/output/sink.h"

namespace yoke::launch {

/// Writes those lines of several ranks that contain one of `texts` to one file.
struct LineFilter {
  std::vector<std::string> texts;
  Sink* file = nullptr;  ///< From RankReader::add_log(); null if there is none.
};

/// The read end of a rank's standard output or error, and the destinations of its bytes.
struct StreamSource {
  UniqueFd pipe;                 ///< The read end; empty if the rank writes elsewhere.
  Sink* copy = nullptr;          ///< From RankReader::add_log(); gets the bytes unchanged. Null if no copy is made.
  LineFilter* filter = nullptr;  ///< Must outlive the stream; null if there is none.
  std::string filter_prefix;     ///< The prefix of lines in the filter's file.
};

/// Receives the output.
struct OutputTaker {
  std::function<bool(bool is_err)> has_room;
  /// `bytes` is nullopt at the end of the stream.
  std::function<void(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes)> take;
  /// Called when a log cannot be written, and when it can be written again.
  std::function<void(const std::string& line)> complain;
};

class RankReader {
 public:
  explicit RankReader(OutputTaker taker);

  /// Opens a file into which streams are copied, until settle_logs().
  Sink& add_log(const std::string& path, LogStart start = LogStart::kEmpty);
  /// Tries again to write what is missing in logs, and closes them. Returns lines for the user about what is still
  /// missing. Called after all streams have ended.
  std::vector<std::string> settle_logs();

  void add(int64_t rank, bool is_err, StreamSource source);
  void add_to(WaitSet& waits);

  /// Reads what is available, and retries failed writes to logs. If `writers_are_gone`, an empty pipe counts as ended,
  /// even if a process that cannot be killed still has its other end.
  void read(bool writers_are_gone);

  bool is_finished() const { return streams_.empty(); }
  bool can_read() const;  ///< Whether a stream has not ended and its output can be passed on.

 private:
  struct Stream {
    int64_t rank;
    bool is_err;
    StreamSource source;
    bool is_ready = false;
    LineAssembler lines{""};  ///< Used for the filter only.
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
