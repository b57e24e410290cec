// yoke/base/terminal.h -- whether a terminal supports colours and cursor movement, and its modes.
#pragma once

#include <termios.h>

#include <optional>
#include <string_view>

#include "yoke/base/environment.h"

namespace yoke {

/// The values of `--color`.
enum class ColorMode { kAuto, kAlways, kNever };

/// Parses "auto", "always" or "never". Returns nullopt for any other text.
std::optional<ColorMode> parse_color_mode(std::string_view text);

/// Whether a command uses colours. With kAuto it uses them on a terminal, unless NO_COLOR is set and not empty, or the
/// terminal shows no colours (has_escape_sequences()). Pure.
bool wants_color(ColorMode mode, const Environment& environment, bool is_terminal);

/// False if TERM is unset, empty or `dumb`: such a terminal shows escape sequences as text. Pure.
bool has_escape_sequences(const Environment& environment);

/// Whether this process was started from a cell of a Jupyter notebook. jupyter_client sets JPY_PARENT_PID for kernels;
/// ipykernel sets TERM and GIT_PAGER for programs of cells, whichever front end has started it. Pure.
bool is_in_notebook(const Environment& environment);

/// Whether a terminal shows a line that is drawn again in place: has_escape_sequences(), and no notebook. A cell's
/// terminal is one that ipykernel reads, and front ends differ in what they make of a cursor that moves. Pure.
bool can_redraw(const Environment& environment);

/// Whether `fd` is the controlling terminal of this process, and this process's group is in the foreground there. While
/// the group is in the background, a shell or a different job uses the terminal.
bool is_in_foreground(int fd);

/// Whether this process has a controlling terminal, regardless of its standard streams.
bool has_controlling_terminal();

/// Saves the modes of a terminal. A program may change them (raw, no echo) and be killed; restore() undoes the changes.
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
