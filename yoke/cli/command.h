// yoke/cli/command.h -- the context in which every command runs, and the table of all commands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"

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
  std::filesystem::path libexec;  ///< Programs `yoke-NAME`, and recipes/NAME.
  std::filesystem::path share;    ///< examples/first
};

/// Derived from /proc/self/exe, so that an installation may be moved.
Installation find_installation();

/// `environment` with the folder in PYTHONPATH by which Python loads what yoke adds to a program (tools/python).
Environment with_python_hooks(Environment environment, const Installation& installation);

/// The role of `yoke agent`, which runs the command of a different host on this host, as a node of that host's job.
struct AgentRole {
  launch::Channel& channel;          ///< The connection to the head node.
  std::optional<int64_t> num_ranks;  ///< The number of ranks, in place of the one in the command line.
  bool heads_terminal = false;       ///< The head node's standard output is a terminal.
};

struct Context {
  std::ostream& out;
  Environment environment;
  Installation installation;
  /// The words that belong to the program that is started: for `yoke run` the program and its arguments, for `yoke
  /// train` the recipe and its arguments.
  std::vector<std::string> rest;
  int exit_code = kExitOk;
  std::vector<std::string> words = {};  ///< The whole command line.
  const AgentRole* agent = nullptr;     ///< Null for an ordinary command.
  std::string command = {};             ///< Name of the command, "run", which begins messages; empty for `yoke` itself.
};

/// Runs `yoke WORDS...` and returns its exit status.
/// Errors  kInvalidArgument: words that are not understood; whatever the command throws.
int run_command_line(std::vector<std::string> words, Context& context);

/// The type name of a positional argument that names a program to start. The program's name and all words after it are
/// passed to the program, in Context::rest.
inline constexpr const char* kProgramArguments = "[ARG...]";

/// A command. Help, completion, man pages and spelling hints are derived from the table of commands.
struct Command {
  std::string_view name;
  std::string_view summary;
  /// Adds options, examples and the callback to `cmd`, which has its name and summary already.
  void (*add)(CLI::App& cmd, Context& context);
  std::string_view alias = {};
  bool is_hidden = false;  ///< Programs run it, not people: it is in no help, completion or man page.
  /// Rewrites the command's words before they are parsed; null: they are parsed as they are.
  std::vector<std::string> (*rewrite)(const std::vector<std::string>& words) = nullptr;
  /// The word after the command's name that says what it acts on, "batch" in `yoke tune batch`; empty: there is none.
  std::string_view object = {};
};

/// All commands, in the order of help. A name that is not in this table starts a program, if there is one: see
/// frame/external.h.
std::span<const Command> command_table();

/// Finds a command by its name or alias; null if there is none.
const Command* find_command(std::string_view name);

/// Adds the commands of the table to `app`.
void add_commands(CLI::App& app, Context& context);

/// `text` formatted as the examples at the end of a command's help.
std::string examples(std::string_view text);

}  // namespace yoke::cli
