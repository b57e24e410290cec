// yoke/base/command_output.h -- runs a program of another system (an engine, a scheduler) and returns what it printed.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"

namespace yoke {

struct CommandOutput {
  /// The exit status; 128 plus the signal's number if a signal ended the program; 127 if there is no such program.
  int status = 0;
  bool timed_out = false;  ///< The program did not end in time and was killed.
  std::string out, err;
};

/// Runs `argv` without input and waits for its end, but at most `limit`; then the program and its process group get
/// SIGTERM, and SIGKILL at the latest 2 s later. They also get SIGTERM if the caller ends. Without a limit, the program
/// stays in the process group of the caller, so that Ctrl-C reaches it.
/// Errors  as errno says: no process can be started.
CommandOutput run_quietly(const std::vector<std::string>& argv, const Environment& environment,
                          std::optional<std::chrono::milliseconds> limit = {});

/// Runs `argv`, shows what it prints on standard error, and passes on signals (held_signals.h). Returns its status.
int run_visibly(const std::vector<std::string>& argv, const Environment& environment);

}  // namespace yoke
