// tests/run/launch.h -- starts the command under test, for tests/run.
#pragma once

#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/lines.h"

namespace yoke::test {

inline constexpr const char* kYoke = YOKE_COMMAND;
inline constexpr const char* kRank = YOKE_TEST_RANK;  ///< tests/support/rank.cpp

/// Runs `yoke run WORDS...`.
inline CommandOptions yoke_run(std::vector<std::string> words) {
  words.insert(words.begin(), {kYoke, "run"});
  return {.argv = std::move(words)};
}

/// Runs `yoke run -n NUM -- sh -c SCRIPT`.
inline CommandOptions yoke_run_shell(int num_ranks, const std::string& script) {
  return yoke_run({"-n", std::to_string(num_ranks), "--", "sh", "-c", script});
}

}  // namespace yoke::test
