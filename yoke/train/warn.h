// yoke/train/warn.h -- where lines about what was survived go.
#pragma once

#include <functional>
#include <string>

namespace yoke::train {

/// Receives one line about something that was survived.
using Warn = std::function<void(const std::string& message)>;

/// "warning: MESSAGE" on standard error.
void warn_on_stderr(const std::string& message);

}  // namespace yoke::train
