// tests/top/tmux.h -- a terminal that tests can type into and read: tmux, with a server of its own.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/command.h"

namespace yoke::test {

/// Whether this machine has tmux; tests that need it are skipped otherwise.
bool has_tmux();

struct TmuxOptions {
  int width = 80, height = 24;
  std::string term = "screen-256color";
  std::vector<std::pair<std::string, std::string>> environment = {};
  /// What the shell in it runs, with job control. After it the shell waits for more.
  std::string command;
};

class Tmux {
 public:
  explicit Tmux(const TmuxOptions& options);
  Tmux(const Tmux&) = delete;
  Tmux& operator=(const Tmux&) = delete;
  ~Tmux();

  /// Names as tmux has them ("Down", "C-z"), or single characters.
  void press(const std::vector<std::string>& keys) const;
  /// Bytes as they are.
  void type(const std::string& bytes) const;
  void resize(int width, int height) const;

  /// What is seen, a line each.
  std::string text() const;
  /// The same with escape sequences for colours.
  std::string styled_text() const;
  std::string title() const;
  /// Of the shell in it.
  pid_t shell() const;

  /// Whether `text` comes to be seen, or goes.
  bool shows(std::string_view text) const;
  bool no_longer_shows(std::string_view text) const;

 private:
  std::string run(std::vector<std::string> words) const;

  TemporaryFolder folder_;
};

}  // namespace yoke::test
