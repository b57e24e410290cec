// yoke/cli/frame/progress_line.h -- a line on the terminal that tells what a slow command is doing.
#pragma once

#include <chrono>
#include <string>

#include "yoke/base/environment.h"

namespace yoke::cli {

/// Writes to standard error if it is a terminal. The line appears after half a second, changes at most five times a
/// second, and disappears when this object is destroyed.
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
