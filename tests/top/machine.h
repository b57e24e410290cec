// tests/top/machine.h -- machines with fake GPUs that real processes use.
#pragma once

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_machine.h"

namespace yoke::test {

inline constexpr const char* kYoke = YOKE_COMMAND;

/// A process that sleeps until it is ended. Its name is the first word of `argv`.
class Sleeper {
 public:
  explicit Sleeper(const std::string& name = "train", bool ignores_term = false) : pid_(fork()) {
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ > 0) return;
    if (ignores_term) signal(SIGTERM, SIG_IGN);
    execlp("sleep", name.c_str(), "1000", nullptr);
    _exit(125);
  }
  Sleeper(Sleeper&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Sleeper& operator=(Sleeper&&) = delete;
  ~Sleeper() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }

  /// Returns the signal that ended the process; 0 while it lives.
  int ended_by() const {
    siginfo_t info = {};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == pid_ ? info.si_status : 0;
  }

 private:
  pid_t pid_;
};

/// A machine with GPUs, over which `processes` are distributed in turn. `more` is merged into the state.
struct Machine : FakeMachine {
  explicit Machine(int num_gpus, const std::vector<Sleeper>& processes = {}, const std::string& more = "{}")
      : FakeMachine(state_with(num_gpus, processes, Json::parse(more))) {}

  std::vector<std::pair<std::string, std::string>> environment() const {
    auto variables = driver_with(state());
    variables.insert(variables.end(), {{"LC_ALL", "C.UTF-8"}, {"NO_COLOR", ""}});
    return variables;
  }

 private:
  static Json state_with(int num_gpus, const std::vector<Sleeper>& processes, Json state) {
    state["devices"] = num_gpus;
    for (size_t i = 0; i < processes.size(); ++i) {
      auto& gpu = state["overrides"][std::to_string(i % static_cast<size_t>(num_gpus))];
      gpu["processes"].push_back({{"pid", processes[i].pid()}, {"memory_mib", 1000 + i}, {"sm", i % 100}});
    }
    return state;
  }
};

/// Returns a shell script that runs `yoke top WORDS`, and then prints its exit status and the terminal's modes.
inline std::string yoke_top(const std::string& words = "") {
  return fmt::format("clear; {} top {}; echo \"left with $?\"; stty -a | grep -q ' echo ' && echo 'typing shows'",
                     kYoke, words);
}

}  // namespace yoke::test
