// yoke/base/terminal.h -- what may be written to a terminal (colours, lines that are painted over), and its modes.
#pragma once

#include <termios.h>

#include <optional>
#include <string_view>

#include "yoke/base/environment.h"

namespace yoke {

/// The values of `--color`.
enum class ColorMode { kAuto, kAlways, kNever };

/// nullopt: none of auto, always and never.
std::optional<ColorMode> parse_color_mode(std::string_view text);

/// The rule of all commands. Pure. kAuto: colours on a terminal, unless NO_COLOR is set and not empty, or the terminal
/// shows none (has_escape_sequences()).
bool wants_color(ColorMode mode, const Environment& environment, bool is_terminal);

/// False where TERM is unset, empty or `dumb`: such a terminal prints escape sequences as text. Pure.
bool has_escape_sequences(const Environment& environment);

/// Whether `fd` is the controlling terminal of this process, and its process group is in the foreground there. In the
/// background a shell has the cursor.
bool is_in_foreground(int fd);

/// Whether this process has a controlling terminal, whatever its standard streams are.
bool has_controlling_terminal();

/// The modes of a terminal as they were, for when a program that changed them (raw, no echo) was killed.
class TerminalModes {
 public:
  explicit TerminalModes(int fd);
  /// Does nothing in the background, where another job has the terminal, and where `fd` was no terminal.
  void restore() const;

 private:
  int fd_;
  std::optional<termios> modes_;
};

}  // namespace yoke
