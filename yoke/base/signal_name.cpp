#include "yoke/base/signal_name.h"

#include <fmt/format.h>
#include <string.h>

namespace yoke {

std::string signal_name(int signal) {
  if (const char* name = sigabbrev_np(signal)) return fmt::format("SIG{}", name);
  return fmt::format("signal {}", signal);
}

std::string describe_end(int status) {
  if (status <= 128) return fmt::format("the program ended with status {}", status);
  return fmt::format("{} ended the program", signal_name(status - 128));
}

}  // namespace yoke
