// tests/run/commands.h -- lists the commands of the tested program, as its completion offers them.
#pragma once

#include <string>
#include <vector>

#include "tests/run/launch.h"
#include "yoke/base/text.h"

namespace yoke::test {

/// Returns the words that completion offers with a description after `yoke WORDS...`.
inline std::vector<std::string> described_after(std::vector<std::string> words) {
  words.insert(words.begin(), {kYoke, "complete", "--"});
  words.emplace_back();
  std::vector<std::string> names;
  for (const auto& line : lines_of(run({.argv = std::move(words)}).out)) {
    const auto tab = line.find('\t');
    if (tab != line.npos && tab + 1 < line.size()) names.push_back(line.substr(0, tab));
  }
  return names;
}

/// Returns the names of all commands that users see, such as "run", and of their actions, such as "env create". Leaves
/// out programs of libexec, which completion offers without a description.
inline std::vector<std::string> commands() {
  std::vector<std::string> names;
  for (const auto& name : described_after({})) {
    names.push_back(name);
    const bool has_actions = run({.argv = {kYoke, name, "--help"}}).out.find("\nSubcommands:\n") != std::string::npos;
    if (!has_actions) continue;
    for (const auto& action : described_after({name})) names.push_back(name + " " + action);
  }
  return names;
}

/// The words of a command line that begins with a name of commands().
inline std::vector<std::string> words_with(const std::string& command, std::vector<std::string> words) {
  const auto parts = split(command, ' ');
  words.insert(words.begin(), parts.begin(), parts.end());
  return words;
}

}  // namespace yoke::test
