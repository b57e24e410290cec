// tests/top/tmux.h -- a terminal that tests can type into and read: a separate server of tmux.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/command.h"

namespace yoke::test {

/// Whether this machine has tmux. If not, tests that need it are skipped.
bool has_tmux();

struct TmuxOptions {
  int width = 80, height = 24;
  std::string term = "screen-256color";
  std::vector<std::pair<std::string, std::string>> environment = {};
  /// The command that the shell in the terminal runs, with job control. The shell then waits for input.
  std::string command;
};

class Tmux {
 public:
  explicit Tmux(const TmuxOptions& options);
  Tmux(const Tmux&) = delete;
  Tmux& operator=(const Tmux&) = delete;
  ~Tmux();

  /// Types keys: single characters, or tmux's names of keys ("Down", "C-z").
  void press(const std::vector<std::string>& keys) const;
  /// Types bytes unchanged.
  void type(const std::string& bytes) const;
  void resize(int width, int height) const;

  /// Returns the lines on the screen.
  std::string text() const;
  /// Like text(), with escape sequences for colours.
  std::string styled_text() const;
  std::string title() const;
  /// Returns the PID of the terminal's shell.
  pid_t shell() const;

  /// Each waits until `text` appears on the screen, or disappears. Returns false if that does not happen in time.
  bool shows(std::string_view text) const;
  bool no_longer_shows(std::string_view text) const;

 private:
  std::string run(std::vector<std::string> words) const;

  TemporaryFolder folder_;
};

}  // namespace yoke::test
