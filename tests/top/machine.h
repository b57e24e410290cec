// tests/top/machine.h -- a machine with GPUs that it has not, and processes that are real.
#pragma once

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/command.h"

namespace yoke::test {

inline constexpr const char* kYoke = YOKE_COMMAND;

/// A process that does nothing until it is ended, under the name that `argv` gives it.
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

  /// The signal that ended it; 0 while it lives.
  int ended_by() const {
    siginfo_t info = {};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == pid_ ? info.si_status : 0;
  }

 private:
  pid_t pid_;
};

/// GPUs as the fake NVML pretends them, with `processes` one after the other on them; `more` goes into the state.
class Machine {
 public:
  explicit Machine(int num_gpus, const std::vector<Sleeper>& processes = {}, const std::string& more = "{}") {
    auto state = nlohmann::json::parse(more);
    state["devices"] = num_gpus;
    for (size_t i = 0; i < processes.size(); ++i) {
      auto& gpu = state["overrides"][std::to_string(i % static_cast<size_t>(num_gpus))];
      gpu["processes"].push_back({{"pid", processes[i].pid()}, {"memory_mib", 1000 + i}, {"sm", i % 100}});
    }
    folder_.write("state.json", state.dump());
  }

  std::vector<std::pair<std::string, std::string>> environment() const {
    return {{"LD_LIBRARY_PATH", YOKE_FAKES_FOLDER},
            {"YOKE_FAKE_NVML", folder_.path("state.json")},
            {"LC_ALL", "C.UTF-8"},
            {"NO_COLOR", ""}};
  }

 private:
  TemporaryFolder folder_;
};

/// yoke top WORDS, and then what became of it and of the terminal.
inline std::string yoke_top(const std::string& words = "") {
  return fmt::format("clear; {} top {}; echo \"left with $?\"; stty -a | grep -q ' echo ' && echo 'typing shows'",
                     kYoke, words);
}

}  // namespace yoke::test
