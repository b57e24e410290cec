// tests/support/command.h -- runs a command as a user would, and finds the processes that it started.
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
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< Variables added to the test's own.
  std::vector<std::string> without = {};                              ///< Variables to remove.
  std::string input = {};                                             ///< Text of standard input; empty: /dev/null.
  std::optional<int> input_fd = {};  ///< A descriptor as standard input, instead of `input`.
  std::string folder = {};           ///< The working directory; empty: the test's own.
  /// Makes a pseudo-terminal standard output and error, and the controlling terminal of the command's new session.
  /// out() returns both outputs. TERM is xterm unless `environment` sets it.
  bool on_terminal = false;
  /// Makes it the leader of a process group of its own, as a shell does. Only then Ctrl-Z (SIGTSTP) stops it.
  bool own_group = false;
  bool join_outputs = false;                ///< Redirects standard error to standard output, as 2>&1 does.
  bool leave_unread = false;                ///< Does not read the output until wait().
  std::optional<uint64_t> file_limit = {};  ///< The soft and the hard limit RLIMIT_NOFILE.
};

struct Result {
  int exit_code = -1;  ///< 128 plus the signal's number if a signal ended the command.
  bool timed_out = false;
  std::string out, err;
};

/// A running command. All signals have their default action in it. The destructor kills it.
class Command {
 public:
  explicit Command(const CommandOptions& options);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  void close_output();  ///< Closes the read ends, as `| head` does after enough lines.

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

  /// Reads output until `condition` holds. Returns false if `limit` passes before.
  bool wait_until(const std::function<bool()>& condition, milliseconds limit = milliseconds(60'000));
  bool wait_for_output(std::string_view text);
  Result wait(milliseconds limit = milliseconds(200'000));

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

/// Returns the content of a file; empty if it cannot be read.
std::string slurp(const std::string& path);

/// Waits until `condition` holds. Returns false if `limit` passes before.
bool wait_until(const std::function<bool()>& condition, milliseconds limit = milliseconds(60'000));

/// Returns a new value for YOKE_TEST_TAG, unique on this machine.
std::string new_tag();
/// Returns the running processes, without zombies, whose environment has YOKE_TEST_TAG=tag.
std::vector<pid_t> processes_with_tag(const std::string& tag);
std::vector<pid_t> children_of(pid_t parent);
/// Returns the state in /proc/PID/stat, such as 'T' for a stopped process; 'X' if there is no such process.
char state_of(pid_t pid);
/// Returns the guardian of a launcher; nullopt if it has not started yet.
std::optional<pid_t> guardian_of(pid_t launcher);

/// Creates a folder, which the destructor removes.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string path(std::string_view file = "") const;
  /// Writes a file, and creates the folders in its path.
  void write(const std::string& file, const std::string& text, bool executable = false) const;

 private:
  std::string path_;
};

}  // namespace yoke::test
