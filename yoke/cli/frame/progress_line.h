// yoke/cli/frame/progress_line.h -- a line on the terminal that tells what a slow command is doing.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "yoke/base/environment.h"

namespace yoke::cli {

/// Writes to standard error if that is a terminal. The line disappears with this object.
class ProgressLine {
 public:
  explicit ProgressLine(const Environment& environment);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { clear(); }

  /// Shows the text, unless this object is younger than half a second or the line changed 0.2 s ago.
  void show(const std::string& text);
  /// Shows the text at once, for work that always takes long and has few steps.
  void show_now(const std::string& text);
  void clear();

  /// How rooms tell what they are doing: the function shows a text as show() does, and clears the line for "". It must
  /// not outlive this object.
  std::function<void(const std::string&)> teller() {
    return [this](const std::string& text) { text.empty() ? clear() : show(text); };
  }

 private:
  bool is_shown_, has_text_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace yoke::cli
