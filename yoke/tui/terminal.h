// yoke/tui/terminal.h -- the terminal, through ncurses: shows canvases and reports keys.
#pragma once

#include <memory>
#include <optional>

#include "yoke/base/environment.h"
#include "yoke/tui/canvas.h"
#include "yoke/tui/graph.h"
#include "yoke/tui/model.h"

namespace yoke::tui {

/// Sets the locale of the process to that of `environment`, and returns the glyphs that it can show. A UTF-8 locale
/// that is not installed here (its name may have come by ssh) becomes C.UTF-8.
Glyphs prepare_locale(const Environment& environment);

/// Shows pages on standard output and reads keys from standard input. Only one Terminal exists at a time. The terminal
/// is restored however the process ends, except by SIGKILL.
class Terminal {
 public:
  /// nullptr if the terminal is not known or cannot place its cursor (TERM=dumb). With `wants_color` it shows colours
  /// if it has any. REQUIRES: prepare_locale() was called.
  static std::unique_ptr<Terminal> open(bool wants_color);
  ~Terminal();

  Size size() const;
  void draw(const Canvas& canvas);

  /// Becomes readable when a signal has arrived; see next().
  int signal_fd() const;

  struct Input {
    std::optional<Event> event;
    int ending_signal = 0;   ///< A signal or Ctrl-C has told the process to end.
    bool must_draw = false;  ///< The page must be drawn again: after Ctrl-Z, or because Ctrl-L was pressed.
  };
  /// Returns the next event; nullopt if there is none. Does not wait.
  std::optional<Input> next();

 private:
  struct Impl;
  explicit Terminal(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::tui
