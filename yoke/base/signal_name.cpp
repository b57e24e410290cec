#include "yoke/base/signal_name.h"

#include <fmt/format.h>
#include <string.h>

namespace yoke {

std::string signal_name(int signal) {
  if (const char* name = sigabbrev_np(signal)) return fmt::format("SIG{}", name);
  return fmt::format("signal {}", signal);
}

}  // namespace yoke
