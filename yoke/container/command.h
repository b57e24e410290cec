// yoke/container/command.h -- runs a program of a container engine and returns what it printed.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/environment.h"

namespace yoke::container {

struct Output {
  int status = 0;  ///< The exit status; 128 plus the signal's number if a signal ended the program.
  std::string out, err;
};

/// Runs `argv` without input and waits for its end. Errors  as errno says: no process can be started.
Output run_quietly(const std::vector<std::string>& argv, const Environment& environment);

/// Runs `argv` and shows what it prints on standard error, such as the progress of a download. Returns its status.
int run_visibly(const std::vector<std::string>& argv, const Environment& environment);

}  // namespace yoke::container
