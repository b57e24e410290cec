// yoke/base/signal_name.h -- signals as people write them.
#pragma once

#include <string>

namespace yoke {

/// "SIGTERM", or "signal 64".
std::string signal_name(int signal);

}  // namespace yoke
