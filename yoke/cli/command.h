// yoke/cli/command.h -- the context in which every command runs, and the table of all commands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/json_text.h"

namespace CLI {
class App;
}
namespace yoke::launch {
class Channel;
}

namespace yoke::cli {

inline constexpr int kExitOk = 0;

/// The paths of the parts of this installation, or of this build tree.
struct Installation {
  std::filesystem::path executable;
  std::filesystem::path libexec;  ///< Folder of the programs `yoke-NAME` and of recipes/NAME.
  std::filesystem::path share;    ///< Folder of examples/first.
};

/// Finds the paths from /proc/self/exe, so that users may move an installation.
Installation find_installation();

/// `environment` with the folder in PYTHONPATH by which Python loads what yoke adds to a program (tools/python).
Environment with_python_hooks(Environment environment, const Installation& installation);

/// How `yoke agent` runs a command line: on this host, as one node of a job that was started on a different host.
struct AgentRole {
  launch::Channel& channel;          ///< The connection to the head node.
  std::optional<int64_t> num_ranks;  ///< Replaces the number of ranks in the command line.
  bool heads_terminal = false;       ///< The head node's standard output is a terminal.
};

struct Context {
  std::ostream& out;
  Environment environment;
  Installation installation;
  /// For `yoke run` the program and its arguments, for `yoke train` the recipe and its arguments.
  std::vector<std::string> rest;
  int exit_code = kExitOk;
  std::vector<std::string> words = {};  ///< The whole command line.
  const AgentRole* agent = nullptr;     ///< Null for an ordinary command.
  std::string command = {};             ///< Such as "run"; messages begin with it. Empty for `yoke` itself.
};

/// Runs `yoke WORDS...` and returns its exit status.
/// Errors  kInvalidArgument: a word is unknown or has a wrong value; also the errors of the command.
int run_command_line(std::vector<std::string> words, Context& context);

/// The type name of a positional argument that names a program to start. The program's name and all words after it are
/// passed to the program, in Context::rest.
inline constexpr const char* kProgramArguments = "[ARG...]";

/// A command. Help, completion, man pages and spelling hints are derived from the table of commands.
struct Command {
  std::string_view name;
  std::string_view summary;
  /// Adds options, examples and the callback to `cmd`, which has its name and summary already. A command with actions,
  /// as in `yoke env create`, adds them by cmd.add_subcommand() and calls cmd.require_subcommand(1), or (0, 1) if it
  /// also does something without one; its own callback then runs for actions too. Each action has its own help,
  /// completion and man page.
  void (*add)(CLI::App& cmd, Context& context);
  std::string_view alias = {};
  bool is_hidden = false;      ///< Help, completion and man pages leave the command out, because only programs run it.
  bool describes_all = false;  ///< It reads the options and actions of all commands.
  /// Rewrites the command's words before they are parsed; null if no rewriting is needed.
  std::vector<std::string> (*rewrite)(const std::vector<std::string>& words) = nullptr;
  /// The word after the command's name that says what the command acts on, "batch" in `yoke tune batch`, or empty.
  std::string_view object = {};
};

/// All commands, in the order of help. For a NAME that is not in the table, `yoke NAME` starts the program yoke-NAME:
/// see frame/external.h.
std::span<const Command> command_table();

/// Finds a command by its name or alias; null if there is none.
const Command* find_command(std::string_view name);

/// Adds the commands of the table to `app`, each with its name and summary. Only `used` gets its options and actions,
/// or all commands if it describes them: to build them all takes most of the time of a short command. Null: none gets
/// them.
void add_commands(CLI::App& app, Context& context, const Command* used);

/// Throws the error for words that a command does not understand.
template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format(text, std::forward<Args>(args)...));
}

/// Prints what a command gives programs, as an indented page.
template <class Json = nlohmann::ordered_json>
void print_json(const Json& json, const Context& context) {
  context.out << json_page(json);
}

/// Returns `text` in the format of the examples at the end of a command's help.
std::string examples(std::string_view text);

}  // namespace yoke::cli
