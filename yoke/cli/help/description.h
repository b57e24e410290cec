// yoke/cli/help/description.h -- describes the command tree, for completion and man pages.
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
  bool takes_rest = false;  ///< A positional for a program or recipe and all of its arguments.
  bool is_hidden = false;   ///< The option is accepted, but help and completions leave it out.

  /// Returns the alternatives in `value` that users type literally: those in lower case.
  std::vector<std::string> choices() const;
};

struct CommandDescription {
  std::string name;  ///< "run"; the root is "yoke".
  std::string text;
  std::string footer;
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> commands;
  std::vector<std::string> aliases = {};
  std::string object = {};  ///< As Command::object.
  /// The words after `yoke` that name the command: "run", or "env create" for an action; empty for the root.
  std::string path = {};

  /// Finds an option by any of its names; null if there is none.
  const OptionDescription* find_option(std::string_view wanted) const;
  /// Finds a command by its name or an alias; null if there is none.
  const CommandDescription* find_command(std::string_view wanted) const;
  std::vector<const OptionDescription*> positionals() const;
  bool starts_program() const;  ///< The words from the first positional on belong to a program.
};

/// Describes `app` and its commands, without the hidden ones (those in CLI11's empty group).
CommandDescription describe(const CLI::App& app);

/// Returns yoke(1) if `command` is the root, otherwise yoke-NAME(1), as roff source with the man macros.
std::string man_page(const CommandDescription& root, const CommandDescription& command, const std::string& version);

}  // namespace yoke::cli
