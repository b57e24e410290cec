// yoke/base/signal_name.h -- names of signals.
#pragma once

#include <string>

namespace yoke {

/// "SIGTERM", or "signal 64".
std::string signal_name(int signal);

}  // namespace yoke
