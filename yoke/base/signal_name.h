// yoke/base/signal_name.h -- names of signals.
#pragma once

#include <string>

namespace yoke {

/// Returns the name, such as "SIGTERM", or "signal 64" for a signal without one.
std::string signal_name(int signal);

/// "the program ended with status 3", or "SIGSEGV ended the program" if `status` is 128 plus the number of a signal.
std::string describe_end(int status);

}  // namespace yoke
