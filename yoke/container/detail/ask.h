// yoke/container/detail/ask.h -- asks the program of an engine a question, under a deadline.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "yoke/base/command_output.h"

namespace yoke::container {

/// Errors  kTimeout: the program has not ended within `limit`; it was killed.
CommandOutput ask(const std::vector<std::string>& argv, const Environment& environment,
                  std::chrono::milliseconds limit);

}  // namespace yoke::container
