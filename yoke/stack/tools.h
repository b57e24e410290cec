// yoke/stack/tools.h -- runs programs that inspect processes: several at a time, each with a deadline.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "yoke/base/environment.h"

namespace yoke::stack {

struct ToolRun {
  std::vector<std::string> argv;  ///< argv[0] is a path.
  std::string text;               ///< The program's standard output and standard error, up to a limit.
  bool timed_out = false;
};

struct ToolLimits {
  size_t at_once = 4;
  std::chrono::milliseconds deadline{10'000};  ///< The time limit for each program.
};

/// Runs all of `runs` and stores their results in them. The programs have no input and end with this process. A program
/// that misses its deadline is killed. Errors  kUnavailable: no process can be started. REQUIRES: one thread.
void run_tools(std::vector<ToolRun>& runs, const Environment& environment, const ToolLimits& limits = {});

}  // namespace yoke::stack
