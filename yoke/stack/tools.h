// yoke/stack/tools.h -- runs programs that look into processes, several at a time, each with a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "yoke/base/environment.h"

namespace yoke::stack {

struct ToolRun {
  std::vector<std::string> argv;  ///< argv[0] is a path.
  std::string text;               ///< What the program printed on standard output and standard error, up to a limit.
  bool timed_out = false;
};

struct ToolLimits {
  size_t at_once = 4;
  std::chrono::milliseconds deadline{10'000};  ///< For each program.
};

/// Runs all of `runs` and fills in their results. The programs have no input and end with this process; one that misses
/// its deadline is killed. Errors  kUnavailable: no process can be started. REQUIRES: one thread.
void run_tools(std::vector<ToolRun>& runs, const Environment& environment, const ToolLimits& limits = {});

}  // namespace yoke::stack
