// `yoke man`: print a man page. Hidden: the build calls it, so that pages and --help have one source.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/cli/command.h"
#include "yoke/cli/description.h"

namespace yoke::cli {
namespace {

int run_man(const std::string& name, const CLI::App& app, Context& context) {
  auto root = describe(app);
  // A page must not depend on what happens to be installed where it is made.
  root.footer = root.footer.substr(0, root.footer.find("\n\nAlso installed"));
  if (name.empty()) {
    context.out << man_page(root, root, YOKE_VERSION);
    return kExitOk;
  }
  const auto command =
      std::find_if(root.commands.begin(), root.commands.end(), [&](const auto& one) { return one.name == name; });
  if (command == root.commands.end()) throw Error(ErrorCode::kInvalidArgument, "no command `{}`", name);
  context.out << man_page(root, *command, YOKE_VERSION);
  return kExitOk;
}

}  // namespace

void add_man(CLI::App& app, Context& context) {
  auto name = std::make_shared<std::string>();  // CLI11 binds by reference; the callback keeps it alive
  auto* cmd = app.add_subcommand("man", "Print a man page")->group("");
  cmd->add_option("COMMAND", *name, "Of which command; otherwise of yoke");
  cmd->footer(examples("  yoke man run | man -l -"));
  cmd->callback([name, &app, &context] { context.exit_code = run_man(*name, app, context); });
}

}  // namespace yoke::cli
