// yoke/base/signal_name.h -- names of signals.
#pragma once

#include <string>

namespace yoke {

/// Returns the name, such as "SIGTERM", or "signal 64" for a signal without one.
std::string signal_name(int signal);

}  // namespace yoke
