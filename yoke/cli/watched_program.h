// yoke/cli/watched_program.h -- a program started as the shell would, beside this one: same terminal, same process
// group, same streams.
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
  ~WatchedProgram();  ///< A program that has started goes on; one that has not never begins.

  /// 0, or the errno with which it could not be executed.
  int start();

  pid_t pid() const { return pid_; }

  /// Takes note of children that have ended. What the program abandoned may be among them, where this process is a
  /// subreaper.
  void reap();

  /// Its exit status once it has ended: its own, or 128 and the signal's number.
  std::optional<int> status() const { return status_; }

 private:
  pid_t pid_ = -1;
  UniqueFd go_;       ///< A byte lets it begin; end of file makes it end.
  UniqueFd failure_;  ///< The errno of execvp; end of file: it runs.
  std::optional<int> status_;
};

/// Signals as messages on a pipe, while it lives. One that was ignored stays ignored.
class SignalMessages {
 public:
  struct Message {
    int signal = 0;
    bool is_from_process = false;  ///< By kill(2); else by the kernel, as for Ctrl-C, which all in the group get.
  };

  SignalMessages();  ///< SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD. REQUIRES: no other one lives.
  SignalMessages(const SignalMessages&) = delete;
  SignalMessages& operator=(const SignalMessages&) = delete;
  ~SignalMessages();

  int fd() const { return pipe_.read_end.value(); }
  std::optional<Message> next();  ///< Does not wait.

 private:
  struct Before;
  Pipe pipe_;
  std::vector<Before> before_;
};

}  // namespace yoke::cli
