// yoke/cli/frame/progress_line.h -- one line of a terminal that says what is being done, if that takes long.
#pragma once

#include <chrono>
#include <string>

#include "yoke/base/environment.h"

namespace yoke::cli {

/// Writes to standard error if that is a terminal. The line appears after half a second, changes at most five times a
/// second, and disappears with this object.
class ProgressLine {
 public:
  explicit ProgressLine(const Environment& environment);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { clear(); }

  void show(const std::string& text);
  void clear();

 private:
  bool is_shown_, has_text_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace yoke::cli
