// yoke/cli/command.h -- what every subcommand is given, and their list.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
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

/// Where the parts of this installation, or of this build tree, are.
struct Installation {
  std::filesystem::path executable;
  std::filesystem::path libexec;  ///< Programs `yoke-NAME`, and recipes/NAME.
  std::filesystem::path share;    ///< examples/first
};

/// By /proc/self/exe, so that an installation may be moved.
Installation find_installation();

/// `yoke agent`: a command of another host is carried out here, as a node of its job.
struct AgentRole {
  launch::Channel& channel;          ///< To the head.
  std::optional<int64_t> num_ranks;  ///< Instead of what the command says.
  bool heads_terminal = false;       ///< The head's standard output is one.
};

struct Context {
  std::ostream& out;
  Environment environment;
  Installation installation;
  /// The words that are not yoke's own: the program of `yoke run` and its arguments, the recipe of `yoke train` and
  /// its.
  std::vector<std::string> rest;
  int exit_code = kExitOk;
  std::vector<std::string> words = {};  ///< The whole command line.
  const AgentRole* agent = nullptr;     ///< Null: an ordinary command.
  std::string command = {};             ///< Its name, "run", which begins messages; empty for `yoke` itself.
};

/// Runs `yoke WORDS...` and returns its exit status.
/// Errors  kInvalidArgument: what the user typed; whatever the command throws.
int run_command_line(std::vector<std::string> words, Context& context);

/// Type of the positional of a command that starts a program: every word from it on is the program's, and comes in
/// Context::rest.
inline constexpr const char* kProgramArguments = "[ARG...]";

/// The whole command tree; completions and man pages are made from it.
void add_commands(CLI::App& app, Context& context);

void add_agent(CLI::App& app, Context& context);
void add_bind(CLI::App& app, Context& context);
void add_devices(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);
void add_jobs(CLI::App& app, Context& context);
void add_kill(CLI::App& app, Context& context);
void add_logs(CLI::App& app, Context& context);
void add_metrics(CLI::App& app, Context& context);
void add_ps(CLI::App& app, Context& context);
void add_run(CLI::App& app, Context& context);
void add_stack(CLI::App& app, Context& context);
void add_stop(CLI::App& app, Context& context);
void add_top(CLI::App& app, Context& context);
void add_topo(CLI::App& app, Context& context);
void add_train(CLI::App& app, Context& context);
void add_visible(CLI::App& app, Context& context);
void add_watch(CLI::App& app, Context& context);
void add_new(CLI::App& app, Context& context);
void add_completion(CLI::App& app, Context& context);
void add_complete(CLI::App& app, Context& context);
void add_man(CLI::App& app, Context& context);

/// `text` formatted as the examples at the end of a command's help.
std::string examples(std::string_view text);

}  // namespace yoke::cli
