// yoke/cli/stack_tools.h -- programs that look into processes, several at once, none for ever.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "yoke/base/environment.h"

namespace yoke::cli {

struct ToolRun {
  std::vector<std::string> argv;  ///< argv[0] is a path.
  std::string text;               ///< What it printed, standard error too; a bounded amount.
  bool timed_out = false;
};

struct ToolLimits {
  size_t at_once = 4;
  std::chrono::milliseconds deadline{10'000};  ///< Of each.
};

/// Runs all of `runs` and fills in what became of them. They have no input, and end with this process; one that is late
/// is killed. Errors  kUnavailable: no process can be started. REQUIRES: one thread.
void run_tools(std::vector<ToolRun>& runs, const Environment& environment, const ToolLimits& limits = {});

}  // namespace yoke::cli
