// yoke/train/warn.h -- the type of a function that receives warnings.
#pragma once

#include <functional>
#include <string>

namespace yoke::train {

/// Receives one line about a problem that did not stop the work.
using Warn = std::function<void(const std::string& message)>;

/// Prints "warning: MESSAGE" to standard error.
void warn_on_stderr(const std::string& message);

}  // namespace yoke::train
