// yoke/launch/output/line_assembler.h -- from bytes in any portions to whole lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace yoke::launch {

/// Progress bars rewrite their line after '\r': of such a line only the last text before '\n' is kept, and what it
/// shows meanwhile is progress(). Lines longer than `max_line_bytes` are cut into several.
class LineAssembler {
 public:
  explicit LineAssembler(std::string prefix, size_t max_line_bytes = 1 << 20)
      : prefix_(std::move(prefix)), max_line_bytes_(max_line_bytes) {}

  /// Appends every line that is now whole to `lines`: prefix, text, '\n'.
  void feed(std::string_view bytes, std::string& lines);

  /// At the end of the stream: the last line, if it lacks its '\n'.
  void finish(std::string& lines);

  /// The text of an unfinished line that has used '\r'; empty when there is none.
  std::string_view progress() const;
  /// The text of an unfinished line that has not used '\r', as of a prompt; empty when there is none.
  std::string_view unfinished() const { return rewrites_ ? std::string_view() : segment_; }
  const std::string& prefix() const { return prefix_; }

 private:
  void add(std::string_view bytes, std::string& lines);
  void emit(std::string& lines);

  std::string prefix_;
  size_t max_line_bytes_;
  std::string segment_;   ///< After the last '\r' of the unfinished line, or all of it.
  std::string previous_;  ///< The last text that a '\r' ended.
  bool rewrites_ = false;
};

}  // namespace yoke::launch
