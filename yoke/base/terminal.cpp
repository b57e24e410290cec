#include "yoke/base/terminal.h"

#include <fcntl.h>
#include <unistd.h>

#include "yoke/base/file.h"

namespace yoke {

std::optional<ColorMode> parse_color_mode(std::string_view text) {
  if (text == "auto") return ColorMode::kAuto;
  if (text == "always") return ColorMode::kAlways;
  if (text == "never") return ColorMode::kNever;
  return std::nullopt;
}

bool wants_color(ColorMode mode, const Environment& environment, bool is_terminal) {
  if (mode != ColorMode::kAuto) return mode == ColorMode::kAlways;
  return is_terminal && environment.value_or("NO_COLOR", "").empty() && has_escape_sequences(environment);
}

bool has_escape_sequences(const Environment& environment) {
  const auto term = environment.value_or("TERM", "");
  return !term.empty() && term != "dumb";
}

bool is_in_notebook(const Environment& environment) {
  if (!environment.value_or("JPY_PARENT_PID", "").empty()) return true;
  return environment.value_or("TERM", "") == "xterm-color" && environment.value_or("GIT_PAGER", "") == "cat";
}

bool can_redraw(const Environment& environment) {
  return has_escape_sequences(environment) && !is_in_notebook(environment);
}

bool is_in_foreground(int fd) { return tcgetpgrp(fd) == getpgrp(); }

bool has_controlling_terminal() { return UniqueFd(open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)).value() >= 0; }

TerminalModes::TerminalModes(int fd) : fd_(fd) {
  termios modes{};
  if (tcgetattr(fd, &modes) == 0) modes_ = modes;
}

void TerminalModes::restore() const {
  if (modes_ && is_in_foreground(fd_)) tcsetattr(fd_, TCSADRAIN, &*modes_);
}

}  // namespace yoke
