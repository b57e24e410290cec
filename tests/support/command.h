// tests/support/command.h -- runs a command as a user would, and looks at the processes it makes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/sanitized.h"
#include "yoke/base/file.h"

namespace yoke::test {

using std::chrono::milliseconds;

struct CommandOptions {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< In addition to the test's own.
  std::vector<std::string> without = {};                              ///< Variables to take away.
  std::string input = {};                                             ///< Standard input; empty: /dev/null.
  std::optional<int> input_fd = {};                                   ///< Standard input instead of `input`.
  std::string folder = {};                                            ///< To start in.
  /// Standard output and error are a pseudo-terminal, the controlling one of a session of the command's own; out() has
  /// both. TERM is xterm unless `environment` says otherwise.
  bool on_terminal = false;
  bool join_outputs = false;                ///< 2>&1
  bool leave_unread = false;                ///< Nobody reads the output until wait().
  std::optional<uint64_t> file_limit = {};  ///< RLIMIT_NOFILE, soft and hard.
};

struct Result {
  int exit_code = -1;  ///< 128+signal if a signal ended it, as a shell says.
  bool timed_out = false;
  std::string out, err;
};

/// A running command. All signals have their default meaning in it. The destructor kills it.
class Command {
 public:
  explicit Command(const CommandOptions& options);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  void close_output();  ///< As `| head` does when it has enough.

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

  /// Reads output until `condition`; false after `limit`.
  bool wait_until(const std::function<bool()>& condition, milliseconds limit = milliseconds(20'000));
  bool wait_for_output(std::string_view text);
  Result wait(milliseconds limit = milliseconds(60'000));

 private:
  void pump(milliseconds limit);
  bool reap();

  pid_t pid_ = -1;
  UniqueFd out_fd_, err_fd_;
  bool leave_unread_;
  std::optional<int> status_;
  std::string out_, err_;
};

Result run(const CommandOptions& options);

/// The whole file; empty if it cannot be read.
std::string slurp(const std::string& path);

/// Waits for something outside; false after `limit`.
bool wait_until(const std::function<bool()>& condition, milliseconds limit = milliseconds(20'000));

/// A value for YOKE_TEST_TAG that no other process has.
std::string new_tag();
/// Living processes (zombies are not) that were started with YOKE_TEST_TAG=tag.
std::vector<pid_t> processes_with_tag(const std::string& tag);
std::vector<pid_t> children_of(pid_t parent);
/// As in /proc/PID/stat: 'T' when it is stopped; 'X' when there is no such process.
char state_of(pid_t pid);
/// The guardian of a launcher, once there is one.
std::optional<pid_t> guardian_of(pid_t launcher);

/// A new empty folder, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string path(std::string_view file = "") const;
  /// Writes a file, with its folders.
  void write(const std::string& file, const std::string& text, bool executable = false) const;

 private:
  std::string path_;
};

}  // namespace yoke::test
