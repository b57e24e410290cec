// yoke/base/terminal.h -- whether a terminal shows colours and moves the cursor, and its modes.
#pragma once

#include <termios.h>

#include <optional>
#include <string_view>

#include "yoke/base/environment.h"

namespace yoke {

/// The values of `--color`.
enum class ColorMode { kAuto, kAlways, kNever };

/// "auto", "always" or "never"; nullopt: any other text.
std::optional<ColorMode> parse_color_mode(std::string_view text);

/// Whether a command uses colours. kAuto means that it does on a terminal, unless NO_COLOR is set and not empty, or the
/// terminal shows no colours (has_escape_sequences()). Pure.
bool wants_color(ColorMode mode, const Environment& environment, bool is_terminal);

/// False if TERM is unset, empty or `dumb`: such a terminal shows escape sequences as text. Pure.
bool has_escape_sequences(const Environment& environment);

/// Whether `fd` is the controlling terminal of this process, and the process group of this process is in the foreground
/// there. While this group is in the background, a shell or a different job uses the terminal.
bool is_in_foreground(int fd);

/// Whether this process has a controlling terminal, whatever its standard streams are.
bool has_controlling_terminal();

/// Saves the modes of a terminal, to restore them after a program that changed them (raw, no echo) was killed.
class TerminalModes {
 public:
  explicit TerminalModes(int fd);
  /// Does nothing if this process is in the background, where a different job uses the terminal, or if `fd` was not a
  /// terminal.
  void restore() const;

 private:
  int fd_;
  std::optional<termios> modes_;
};

}  // namespace yoke
