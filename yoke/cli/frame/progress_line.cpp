#include "yoke/cli/frame/progress_line.h"

#include <unistd.h>

#include <iostream>

#include "yoke/base/terminal.h"

namespace yoke::cli {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

ProgressLine::ProgressLine(const Environment& environment)
    : is_shown_(isatty(STDERR_FILENO) != 0 && can_redraw(environment)),
      next_(steady_clock::now() + milliseconds(500)) {}

void ProgressLine::show(const std::string& text) {
  if (steady_clock::now() >= next_) show_now(text);
}

void ProgressLine::show_now(const std::string& text) {
  if (!is_shown_) return;
  next_ = steady_clock::now() + milliseconds(200);
  has_text_ = true;
  std::cerr << '\r' << text << "\x1b[K" << std::flush;
}

void ProgressLine::clear() {
  if (has_text_) std::cerr << "\r\x1b[K" << std::flush;
  has_text_ = false;
}

}  // namespace yoke::cli
