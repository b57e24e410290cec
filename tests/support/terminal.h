// tests/support/terminal.h -- a shell with job control on a pseudo-terminal, into which tests type.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/command.h"

namespace yoke::test {

inline constexpr std::string_view kCtrlC = "\x03", kCtrlZ = "\x1a", kCtrlBackslash = "\x1c";

/// Runs bash with the prompt "shell$ " in a new session, whose terminal is 80 columns wide. The destructor kills the
/// shell and all processes that it started.
class ShellOnTerminal {
 public:
  /// Adds `environment` to the test's own. TERM is xterm and NO_COLOR is set, unless `environment` sets them.
  explicit ShellOnTerminal(std::vector<std::pair<std::string, std::string>> environment = {});
  ~ShellOnTerminal();
  ShellOnTerminal(const ShellOnTerminal&) = delete;
  ShellOnTerminal& operator=(const ShellOnTerminal&) = delete;

  /// Types bytes, as a keyboard sends them.
  void type(std::string_view bytes) const;
  /// Types a command line. The terminal echoes it, so the line should not contain a text that the test waits for.
  void run(const std::string& command) const { type(command + "\n"); }

  /// Closes the terminal, as a user does by closing the window.
  void hang_up() { terminal_.reset(); }

  /// All output since the last forget().
  const std::string& out() const { return out_; }
  void forget() { out_.clear(); }

  bool wait_until(const std::function<bool()>& condition, milliseconds limit = milliseconds(60'000));
  bool shows(std::string_view text);
  /// Waits for a file that a command writes, and returns its first line; empty if no line came in time.
  std::string line_of(const std::string& path);

  pid_t shell() const { return shell_; }
  const std::string& tag() const { return tag_; }  ///< YOKE_TEST_TAG in all processes that the shell starts.

 private:
  void read_for(milliseconds limit);

  std::string tag_ = new_tag();
  UniqueFd terminal_;
  pid_t shell_ = -1;
  std::string out_;
};

}  // namespace yoke::test
