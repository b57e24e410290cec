// yoke/program/watched_program.h -- starts a program as a shell would: in the terminal, process group and streams of
// this process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/device/process/info.h"

namespace yoke::program {

struct WatchedProgramOptions {
  std::optional<std::vector<std::string>> environment = {};  ///< "NAME=value"; nullopt: this process's environment.
  int in = kInheritedStream, out = kInheritedStream, err = kInheritedStream;
  bool new_session = false;  ///< The program does not belong to the terminal.
};

class WatchedProgram {
 public:
  /// Forks; the child runs the program after start(). REQUIRES: this process has one thread; `argv` is not empty.
  explicit WatchedProgram(const std::vector<std::string>& argv, const WatchedProgramOptions& options = {});
  WatchedProgram(const WatchedProgram&) = delete;
  WatchedProgram& operator=(const WatchedProgram&) = delete;
  ~WatchedProgram();  ///< If the program has started, it keeps running; otherwise it never starts.

  /// Lets the program begin. Returns 0, or the errno of exec if the program could not be executed.
  int start();

  pid_t pid() const { return pid_; }

  /// Reaps children that have ended. In a subreaper these include orphans of the program.
  void reap();

  /// The program's exit status once it has ended; 128 plus the signal's number if a signal ended it.
  std::optional<int> status() const { return status_; }

 private:
  pid_t pid_ = -1;
  UniqueFd go_;       ///< The child reads it: a byte starts the program, and end of file makes the child exit.
  UniqueFd failure_;  ///< Carries the errno of execvp; end of file means that execvp succeeded.
  std::optional<int> status_;
};

/// Whether a signal asks a program to end: SIGINT, SIGQUIT, SIGTERM or SIGHUP.
bool asks_to_end(int signal);

/// While this object exists, each signal becomes a message on a pipe. Signals that were ignored before stay ignored.
class SignalMessages {
 public:
  struct Message {
    int signal = 0;
    bool is_from_process = false;  ///< Sent by kill(2). At Ctrl-C, the kernel signals the whole process group.
    uid_t sender = 0;              ///< The user who sent it, if a process did.
  };

  /// Catches SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD. REQUIRES: no other SignalMessages exists.
  SignalMessages();
  SignalMessages(const SignalMessages&) = delete;
  SignalMessages& operator=(const SignalMessages&) = delete;
  ~SignalMessages();

  int fd() const { return pipe_.read_end.value(); }
  std::optional<Message> next();  ///< Does not wait; nullopt if no signal has come.

 private:
  struct Before;
  Pipe pipe_;
  std::vector<Before> before_;
};

/// Waits until the program has ended, and passes on signals from kill(2); the terminal's reach the program anyway.
/// Returns its status, or nullopt if this process must end before the program, because `parent` was killed.
std::optional<int> wait_for(WatchedProgram& program, SignalMessages& messages, pid_t parent);

/// Waits until the process `pid`, of which `info` was read, has ended, or a signal asks this process to end.
void wait_for_process(int64_t pid, const device::ProcessInfo& info, SignalMessages& messages);

}  // namespace yoke::program
