// tests/processes/gpu_user.h -- real processes that the fake driver reports as users of its GPUs.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/fake_machine.h"

namespace yoke::test {

/// A child process that runs until the end of the test.
class GpuUser {
 public:
  explicit GpuUser(CommandOptions options) : command_(std::move(options)) {
    const auto own_name = first_line(getpid(), "comm");
    // Waits until exec has replaced the child's program. The kernel changes the name first, then the arguments.
    wait_until([&] { return first_line(pid(), "comm") != own_name && !first_line(pid(), "cmdline").empty(); });
  }
  explicit GpuUser(std::vector<std::string> argv = {"sleep", "1000"})
      : GpuUser(CommandOptions{.argv = std::move(argv)}) {}

  /// The options for a shell that runs `script`. wait_until_ready() waits until the script has printed "ready".
  static CommandOptions shell(const std::string& script) { return {.argv = {"sh", "-c", script}}; }
  bool wait_until_ready() { return command_.wait_for_output("ready"); }

  pid_t pid() const { return command_.pid(); }
  /// The child is not reaped, so it remains a zombie after its end.
  bool is_running() const {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid()), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid == 0;
  }
  Command& command() { return command_; }

 private:
  static std::string first_line(pid_t pid, const char* name) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/" + name);
    std::string line;
    std::getline(file, line);
    return line;
  }

  Command command_;
};

}  // namespace yoke::test
