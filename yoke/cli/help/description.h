// yoke/cli/help/description.h -- the command tree as values, from which completions and man pages are made.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace yoke::cli {

struct OptionDescription {
  std::vector<std::string> names;  ///< "-n", "--nproc-per-node"; "PROGRAM" for a positional.
  std::string value;               ///< "SECONDS", "auto|gpu|cpu|N"; empty for a flag.
  std::string text;
  std::string default_value;
  bool is_positional = false;
  bool value_is_optional = false;
  bool takes_rest = false;  ///< A positional that takes a program or recipe and all words that follow, its arguments.
  bool is_hidden = false;   ///< It is accepted, but neither help nor completions name it.

  /// The alternatives in `value` that are typed literally: those in lower case.
  std::vector<std::string> choices() const;
};

struct CommandDescription {
  std::string name;  ///< "run"; the root is "yoke".
  std::string text;
  std::string footer;
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> commands;
  std::vector<std::string> aliases = {};
  std::string object = {};  ///< As in Command.

  /// Finds an option by any of its names; null if there is none.
  const OptionDescription* find_option(std::string_view wanted) const;
  /// Finds a command by its name or an alias; null if there is none.
  const CommandDescription* find_command(std::string_view wanted) const;
  std::vector<const OptionDescription*> positionals() const;
  bool starts_program() const;  ///< The words from the first positional on belong to a program.
};

/// Describes `app` and its commands, except hidden ones (CLI11's empty group).
CommandDescription describe(const CLI::App& app);

/// The page yoke(1) if `command` is the root, else yoke-NAME(1), in roff with the man macros.
std::string man_page(const CommandDescription& root, const CommandDescription& command, const std::string& version);

}  // namespace yoke::cli
