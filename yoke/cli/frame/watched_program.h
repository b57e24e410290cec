// yoke/cli/frame/watched_program.h -- starts a program beside this process as a shell would: with the same terminal,
// process group and streams.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/base/process.h"

namespace yoke::cli {

struct WatchedProgramOptions {
  std::optional<std::vector<std::string>> environment = {};  ///< "NAME=value"; nullopt: that of this process.
  int out = kInheritedStream;                                ///< Its standard output.
};

class WatchedProgram {
 public:
  /// Forks; the child waits for start() before it becomes the program. REQUIRES: one thread; `argv` is not empty.
  explicit WatchedProgram(const std::vector<std::string>& argv, const WatchedProgramOptions& options = {});
  WatchedProgram(const WatchedProgram&) = delete;
  WatchedProgram& operator=(const WatchedProgram&) = delete;
  ~WatchedProgram();  ///< If the program has started, it keeps running; otherwise it never starts.

  /// Lets the program begin. Returns 0, or the errno of exec if the program could not be executed.
  int start();

  pid_t pid() const { return pid_; }

  /// Reaps children that have ended. If this process is a subreaper, they include orphans of the program.
  void reap();

  /// The program's exit status once it has ended; 128 plus the signal's number if a signal ended it.
  std::optional<int> status() const { return status_; }

 private:
  pid_t pid_ = -1;
  UniqueFd go_;       ///< A byte makes the child start the program; at the end of file the child exits instead.
  UniqueFd failure_;  ///< Carries the errno of execvp; end of file means that the program runs.
  std::optional<int> status_;
};

/// While this object exists, signals arrive as messages on a pipe. Signals that were ignored before stay ignored.
class SignalMessages {
 public:
  struct Message {
    int signal = 0;
    bool is_from_process = false;  ///< Sent by kill(2), not by the kernel, which signals the whole group at Ctrl-C.
  };

  /// Catches SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD. REQUIRES: no other SignalMessages exists.
  SignalMessages();
  SignalMessages(const SignalMessages&) = delete;
  SignalMessages& operator=(const SignalMessages&) = delete;
  ~SignalMessages();

  int fd() const { return pipe_.read_end.value(); }
  std::optional<Message> next();  ///< Returns at once; nullopt if no signal has come.

 private:
  struct Before;
  Pipe pipe_;
  std::vector<Before> before_;
};

}  // namespace yoke::cli
