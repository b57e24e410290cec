// yoke/cli/frame/watched_program.h -- starts a program beside this process as a shell would: with the same terminal,
// process group and streams.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"

namespace yoke::cli {

class WatchedProgram {
 public:
  /// Forks; the program begins with start(). REQUIRES: one thread; `argv` is not empty.
  explicit WatchedProgram(const std::vector<std::string>& argv);
  WatchedProgram(const WatchedProgram&) = delete;
  WatchedProgram& operator=(const WatchedProgram&) = delete;
  ~WatchedProgram();  ///< A program that has started keeps running. One that has not will not start.

  /// Lets the program begin. Returns 0, or the errno with which it could not be executed.
  int start();

  pid_t pid() const { return pid_; }

  /// Reaps children that have ended. In a subreaper, processes that the program abandoned are among them.
  void reap();

  /// The program's exit status once it has ended; 128 plus the signal's number if a signal ended it.
  std::optional<int> status() const { return status_; }

 private:
  pid_t pid_ = -1;
  UniqueFd go_;       ///< A byte lets the program begin; at the end of file it exits instead.
  UniqueFd failure_;  ///< Carries the errno of execvp; end of file means that the program runs.
  std::optional<int> status_;
};

/// While this object exists, signals arrive as messages on a pipe. A signal that was ignored stays ignored.
class SignalMessages {
 public:
  struct Message {
    int signal = 0;
    bool is_from_process = false;  ///< Sent by kill(2). The kernel sends those of Ctrl-C, to the whole group.
  };

  /// SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD. REQUIRES: no other SignalMessages exists.
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
