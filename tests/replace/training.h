// tests/replace/training.h -- a training of replace_program under `yoke run`, whose ranks a test kills.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/lines.h"

namespace yoke::test {

using Words = std::vector<std::string>;

/// A training under `yoke run`.
class Training {
 public:
  /// `options`: the command, and what it needs.
  Training(CommandOptions options, int num_ranks) : command_(for_cpu(std::move(options))), num_ranks_(num_ranks) {}

  /// The last pid that each rank has printed.
  std::map<int, pid_t> pids() const {
    std::map<int, pid_t> pids;
    for (const auto& line : lines_of(command_.out())) {
      int rank = 0, pid = 0;
      if (std::sscanf(line.c_str(), "[%d] pid %d", &rank, &pid) == 2) pids[rank] = pid;
    }
    return pids;
  }
  /// The number of the last line that tells of a step, and how many there are.
  std::pair<int, int> steps() const {
    std::pair<int, int> result;
    for (const auto& line : lines_of(command_.out())) {
      if (std::sscanf(line.c_str(), "[0] step %d", &result.first) == 1) ++result.second;
    }
    return result;
  }
  bool wait_for_ranks() {
    return command_.wait_until([&] { return std::ssize(pids()) == num_ranks_ && steps().second > 0; });
  }
  /// Waits for so many further lines about steps.
  bool wait_for_steps(int count) {
    const auto wanted = steps().second + count;
    return command_.wait_until([&] { return steps().second >= wanted; });
  }
  /// Waits until the rank is another process.
  bool wait_for_other(int rank, pid_t than) {
    return command_.wait_until([&] { return pids()[rank] != than; });
  }
  Command& command() { return command_; }

 private:
  static CommandOptions for_cpu(CommandOptions options) {
    options.environment.insert(options.environment.end(), {{"YOKE_DEVICE", "cpu"}, {"OMP_NUM_THREADS", "1"}});
    return options;
  }
  Command command_;
  int num_ranks_;
};

inline Words program(const std::string& mode, const TemporaryFolder& folder, int num_steps, const std::string& parallel,
                     int width = 64) {
  return {YOKE_REPLACE_PROGRAM, mode, folder.path(), std::to_string(num_steps), parallel, std::to_string(width)};
}

/// Lets a training that is gated by this folder make its steps up to this one.
inline void let_run_to(int step, const TemporaryFolder& folder) { folder.write("gate", std::to_string(step)); }

/// `program`, whose rank 0 waits after step `first_steps` until it may go on. The others then wait for rank 0.
inline Words gated(Words program, int first_steps, const TemporaryFolder& folder) {
  let_run_to(first_steps, folder);
  program.push_back(folder.path("gate"));
  return program;
}

inline std::vector<std::string> final_states(const TemporaryFolder& folder, int num_ranks) {
  std::vector<std::string> states;
  for (int rank = 0; rank < num_ranks; ++rank) states.push_back(slurp(folder.path("final-" + std::to_string(rank))));
  return states;
}

}  // namespace yoke::test
