// yoke/cli/description.h -- the command tree as values, from which completions and man pages are made.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace yoke::cli {

struct OptionDescription {
  std::vector<std::string> names;  ///< "-n", "--nproc-per-node"; of a positional: "PROGRAM".
  std::string value;               ///< "SECONDS", "auto|gpu|cpu|N"; empty for a flag.
  std::string text;
  std::string default_value;
  bool is_positional = false;

  /// The alternatives of `value` that are meant literally: those in small letters.
  std::vector<std::string> choices() const;
};

struct CommandDescription {
  std::string name;  ///< "run"; of the root "yoke".
  std::string text;
  std::string footer;
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> commands;
};

/// Without what is hidden (CLI11's empty group).
CommandDescription describe(const CLI::App& app);

/// Completion scripts for bash, zsh and fish, whole.
std::string bash_completion(const CommandDescription& root);
std::string zsh_completion(const CommandDescription& root);
std::string fish_completion(const CommandDescription& root);

/// yoke(1) if `command` is the root, else yoke-NAME(1): roff with the man macros.
std::string man_page(const CommandDescription& root, const CommandDescription& command, const std::string& version);

}  // namespace yoke::cli
