// tests/run/commands.h -- the commands of the program under test, as its own completion lists them.
#pragma once

#include <string>
#include <vector>

#include "tests/run/launch.h"

namespace yoke::test {

/// Names of all commands that users see. Programs of libexec, which completion offers without a description, are left
/// out.
inline std::vector<std::string> commands() {
  std::vector<std::string> names;
  for (const auto& line : lines_of(run({.argv = {kYoke, "complete", "--", ""}}).out)) {
    const auto tab = line.find('\t');
    if (tab != line.npos && tab + 1 < line.size()) names.push_back(line.substr(0, tab));
  }
  return names;
}

}  // namespace yoke::test
