// yoke/tui/terminal.h -- the terminal, through ncurses: shows canvases, says what was pressed. Nothing else.
#pragma once

#include <memory>
#include <optional>

#include "yoke/base/environment.h"
#include "yoke/tui/canvas.h"
#include "yoke/tui/graph.h"
#include "yoke/tui/model.h"

namespace yoke::tui {

/// Makes the process's locale that of `environment`, and says what it can show. A UTF-8 locale that is not installed
/// (a name that ssh brought along) becomes C.UTF-8.
Glyphs prepare_locale(const Environment& environment);

/// Standard input and output as a page. One at a time. However the process ends, except by SIGKILL, the terminal is
/// left as it was.
class Terminal {
 public:
  /// nullptr when this terminal cannot place its cursor (TERM=dumb), or is not known. `wants_color`: colours where the
  /// terminal has them. REQUIRES: prepare_locale().
  static std::unique_ptr<Terminal> open(bool wants_color);
  ~Terminal();

  Size size() const;
  void draw(const Canvas& canvas);

  /// Becomes readable when a signal has come; see next().
  int signal_fd() const;

  struct Input {
    std::optional<Event> event;
    int ending_signal = 0;   ///< The process was told to end, by a signal or by Ctrl-C.
    bool must_draw = false;  ///< What is shown is gone: it was stopped and continued, or Ctrl-L was pressed.
  };
  /// What has happened since; nullopt when nothing more has. Does not wait.
  std::optional<Input> next();

 private:
  struct Impl;
  explicit Terminal(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::tui
