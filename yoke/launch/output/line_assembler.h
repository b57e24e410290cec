// yoke/launch/output/line_assembler.h -- assembles whole lines from bytes that arrive in arbitrary portions.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::launch {

/// A progress bar rewrites its line after '\r'. Of such a line only the last text before '\n' is kept; until then
/// progress() returns its present text. Lines longer than `max_line_bytes` are split into several.
class LineAssembler {
 public:
  explicit LineAssembler(std::string prefix, size_t max_line_bytes = 1 << 20)
      : prefix_(std::move(prefix)), max_line_bytes_(max_line_bytes) {}

  /// Takes `bytes`, and appends every line that they complete to `lines`: prefix, text, '\n'.
  void feed(std::string_view bytes, std::string& lines);

  /// Appends the last line even if it has no '\n'. Called at the end of the stream.
  void finish(std::string& lines);

  /// For outputs that cannot rewrite a line: appends the progress bar's present text as a line, but at most once in
  /// kProgressEvery, and not before the bar is that old. Called after feed().
  void sample_progress(std::chrono::steady_clock::time_point now, std::string& lines);
  static constexpr std::chrono::seconds kProgressEvery{30};

  /// Returns the text of an unfinished line that has a '\r'; empty if there is none.
  std::string_view progress() const;
  /// Returns the text of an unfinished line without '\r', such as a prompt; empty if there is none.
  std::string_view unfinished() const { return rewrites_ ? std::string_view() : segment_; }
  const std::string& prefix() const { return prefix_; }

 private:
  void add(std::string_view bytes, std::string& lines);
  void emit(std::string& lines);

  std::string prefix_;
  size_t max_line_bytes_;
  std::string segment_;   ///< The part of the unfinished line after its last '\r'.
  std::string previous_;  ///< The last nonempty part that ended with '\r'.
  bool rewrites_ = false;
  std::optional<std::chrono::steady_clock::time_point> next_sample_;
};

}  // namespace yoke::launch
