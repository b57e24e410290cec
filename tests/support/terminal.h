// tests/support/terminal.h -- a shell with job control on a pseudo-terminal, to be typed at.
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

/// bash with the prompt "shell$ ", in a session of its own whose controlling terminal is 80 columns wide. The
/// destructor kills the shell and all that was started there.
class ShellOnTerminal {
 public:
  /// `environment`: in addition to the test's own. TERM is xterm, and NO_COLOR is set, unless they are in it.
  explicit ShellOnTerminal(std::vector<std::pair<std::string, std::string>> environment = {});
  ~ShellOnTerminal();
  ShellOnTerminal(const ShellOnTerminal&) = delete;
  ShellOnTerminal& operator=(const ShellOnTerminal&) = delete;

  /// Bytes as a keyboard sends them.
  void type(std::string_view bytes) const;
  /// A line for the shell, which shows it as every terminal does: what a test waits for should not be in it.
  void run(const std::string& command) const { type(command + "\n"); }

  /// The terminal goes away, as when a window is closed.
  void hang_up() { terminal_.reset(); }

  /// All that was shown since the last forget().
  const std::string& out() const { return out_; }
  void forget() { out_.clear(); }

  bool wait_until(const std::function<bool()>& condition, milliseconds limit = milliseconds(20'000));
  bool shows(std::string_view text);
  /// Waits for a file that a command writes, and returns its first line; empty: none came.
  std::string line_of(const std::string& path);

  pid_t shell() const { return shell_; }
  const std::string& tag() const { return tag_; }  ///< YOKE_TEST_TAG of all that is started here.

 private:
  void read_for(milliseconds limit);

  std::string tag_ = new_tag();
  UniqueFd terminal_;
  pid_t shell_ = -1;
  std::string out_;
};

}  // namespace yoke::test
