// yoke/cli/frame/measured_program.h -- runs a program in a session of its own, reads its output, and leaves none of its
// processes behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/cli/frame/watched_program.h"

namespace yoke::cli {

struct MeasuredProgramOptions {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< "NAME=value"
  bool shows_output = false;             ///< Its output goes to standard error, too.
};

/// REQUIRES: this process has one thread and no other children, and a SignalMessages exists.
class MeasuredProgram {
 public:
  /// Starts it with /dev/null as standard input. Errors  kUnavailable: no process can be started. A program that cannot
  /// be executed ends with status 127 or 126.
  explicit MeasuredProgram(const MeasuredProgramOptions& options);
  MeasuredProgram(const MeasuredProgram&) = delete;
  MeasuredProgram& operator=(const MeasuredProgram&) = delete;
  ~MeasuredProgram();  ///< Kills what is left of it.

  /// Takes its output until it ends, a signal arrives or `limit` is over.
  void wait(SignalMessages& messages, std::chrono::milliseconds limit);

  /// Its exit status once it has ended; 128 plus the signal's number if a signal ended it.
  std::optional<int> status() const { return status_; }
  /// The signal that asks this process to end, if one has come.
  std::optional<int> interruption() const { return interruption_; }
  /// The last 64 KiB of its output.
  const std::string& output() const { return output_; }

  /// Asks its process group to end (SIGTERM), and kills all of its processes after `grace`, or at once if a further
  /// signal arrives. Returns whether it ended by itself.
  bool end(SignalMessages& messages, std::chrono::milliseconds grace);

 private:
  void take_output();
  void reap();
  void kill_all();

  pid_t pid_ = -1;
  UniqueFd output_fd_;
  bool shows_output_;
  std::optional<int> status_, interruption_;
  std::string output_;
};

}  // namespace yoke::cli
