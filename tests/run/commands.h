// tests/run/commands.h -- lists the commands of the tested program, as its completion offers them.
#pragma once

#include <string>
#include <vector>

#include "tests/run/launch.h"

namespace yoke::test {

/// Returns the names of all commands that users see. Leaves out programs of libexec, which completion offers without a
/// description.
inline std::vector<std::string> commands() {
  std::vector<std::string> names;
  for (const auto& line : lines_of(run({.argv = {kYoke, "complete", "--", ""}}).out)) {
    const auto tab = line.find('\t');
    if (tab != line.npos && tab + 1 < line.size()) names.push_back(line.substr(0, tab));
  }
  return names;
}

}  // namespace yoke::test
