// `yoke man`: print a man page. The build calls it, so that pages and --help have one source; help does not list it.
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/cli/command.h"
#include "yoke/cli/help/description.h"
#include "yoke/cli/options/value.h"

namespace yoke::cli {
namespace {

struct ManArgs {
  std::vector<std::string> command;
  std::string folder;
};

/// Writes yoke.1, and yoke-NAME.1 for each command. An action such as `yoke env create` has yoke-env-create.1.
void write_pages(const CommandDescription& root, const std::filesystem::path& folder) {
  const auto write = [&](const CommandDescription& command, const std::string& name) {
    const auto path = folder / (name + ".1");
    std::ofstream file(path);
    file << man_page(root, command, YOKE_VERSION) << std::flush;
    if (!file) throw system_error(errno, "writing " + path.string());
  };
  write(root, root.name);
  for (const auto& command : root.commands) {
    write(command, root.name + "-" + command.name);
    for (const auto& action : command.commands) write(action, root.name + "-" + command.name + "-" + action.name);
  }
}

int run_man(const ManArgs& args, const CLI::App& app, Context& context) {
  auto root = describe(app);
  // A man page must not depend on the programs that are installed on the machine where the page is made.
  root.footer = root.footer.substr(0, root.footer.find("\n\nAlso installed"));
  if (!args.folder.empty()) {
    write_pages(root, args.folder);
    return kExitOk;
  }
  const auto* command = &root;
  for (const auto& name : args.command) {
    command = command->find_command(name);
    if (command == nullptr) refuse("no command `{}`", fmt::join(args.command, " "));
  }
  context.out << man_page(root, *command, YOKE_VERSION);
  return kExitOk;
}

}  // namespace

void add_man(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<ManArgs>();  // CLI11 keeps references to *args; the callback owns it
  cmd.add_option("COMMAND", args->command, "Of which command; otherwise of yoke")->expected(0, 2);
  add_value(cmd, "--folder", args->folder, "DIR", "Write the pages of yoke and of all commands into DIR instead");
  cmd.footer(examples("  yoke man run | man -l -"));
  cmd.callback([args, &cmd, &context] { context.exit_code = run_man(*args, *cmd.get_parent(), context); });
}

}  // namespace yoke::cli
