// yoke/tui/terminal.h -- shows canvases on the terminal and reads keys, by ncurses.
#pragma once

#include <memory>
#include <optional>

#include "yoke/base/environment.h"
#include "yoke/tui/canvas.h"
#include "yoke/tui/graph.h"
#include "yoke/tui/model.h"

namespace yoke::tui {

/// Sets the process's locale to that of `environment`, and returns the glyphs that it can show. A UTF-8 locale that is
/// not installed here (ssh may have passed its name) is replaced by C.UTF-8.
Glyphs prepare_locale(const Environment& environment);

/// Shows pages on standard output and reads keys from standard input. Only one Terminal exists at a time. However the
/// process ends, the terminal is restored, except after SIGKILL.
class Terminal {
 public:
  /// Returns nullptr if the terminal is unknown or cannot place its cursor (TERM=dumb). With `wants_color`, pages have
  /// colours if the terminal supports them. REQUIRES: prepare_locale() was called.
  static std::unique_ptr<Terminal> open(bool wants_color);
  ~Terminal();

  Size size() const;
  void draw(const Canvas& canvas);

  /// Becomes readable when a signal has arrived. next() handles it.
  int signal_fd() const;

  struct Input {
    std::optional<Event> event;
    int ending_signal = 0;  ///< The number of the signal that told the process to end (SIGINT for Ctrl-C); otherwise 0.
    bool must_draw = false;  ///< Whether the page must be drawn again, after Ctrl-Z or because of Ctrl-L.
  };
  /// Returns the next event, or nullopt if there is none. Does not wait.
  std::optional<Input> next();

 private:
  struct Impl;
  explicit Terminal(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::tui
