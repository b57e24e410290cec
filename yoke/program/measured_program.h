// yoke/program/measured_program.h -- runs a program in a session of its own, reads its output, and leaves none of its
// processes behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/program/watched_program.h"

namespace yoke::program {

struct MeasuredProgramOptions {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< "NAME=value"
  int copy_to = kNullStream;             ///< A descriptor to which the program's output is copied too.
};

/// Other children of this process are reaped by wait(), and killed with the program.
/// REQUIRES: this process has one thread, and a SignalMessages exists.
class MeasuredProgram {
 public:
  /// Starts the program with /dev/null as standard input. If the program cannot be executed, its exit status is 127 or
  /// 126. Errors  kUnavailable: no process can be started.
  explicit MeasuredProgram(const MeasuredProgramOptions& options);
  MeasuredProgram(const MeasuredProgram&) = delete;
  MeasuredProgram& operator=(const MeasuredProgram&) = delete;
  ~MeasuredProgram();  ///< Kills all processes of the program.

  /// Reads the program's output until the program ends, a signal arrives or `limit` is over.
  void wait(SignalMessages& messages, std::chrono::milliseconds limit);

  /// The program's exit status once it has ended; 128 plus the signal's number if a signal ended it.
  std::optional<int> status() const { return status_; }
  /// The last signal that asked this process to end; nullopt if none has arrived.
  std::optional<int> interruption() const { return interruption_; }
  /// The last 64 KiB of the program's output.
  const std::string& output() const { return output_; }

  /// Sends SIGTERM to the program's process group. Kills all of its processes after `grace`, or as soon as this process
  /// gets a further signal. Returns whether the program ended before it was killed.
  bool end(SignalMessages& messages, std::chrono::milliseconds grace);

 private:
  void take_output();
  void reap();
  void kill_all();

  pid_t pid_ = -1;
  UniqueFd output_fd_;
  int copy_to_;
  std::optional<int> status_, interruption_;
  std::string output_;
};

}  // namespace yoke::program
