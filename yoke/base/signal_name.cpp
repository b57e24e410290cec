#include "yoke/base/signal_name.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>

namespace yoke {

std::string signal_name(int signal) {
  if (const char* name = sigabbrev_np(signal)) return fmt::format("SIG{}", name);
  return fmt::format("signal {}", signal);
}

std::string describe_wait_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) return "was killed by " + signal_name(WTERMSIG(wait_status));
  return fmt::format("exited with code {}", WEXITSTATUS(wait_status));
}

std::string describe_end(int status) {
  if (status <= 128) return fmt::format("the program ended with status {}", status);
  return fmt::format("{} ended the program", signal_name(status - 128));
}

}  // namespace yoke
