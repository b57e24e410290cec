// `yoke completion`: print a shell's completion script.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/cli/command.h"
#include "yoke/cli/description.h"

namespace yoke::cli {
namespace {

int run_completion(const std::string& shell, const CLI::App& app, Context& context) {
  const auto root = describe(app);
  if (shell == "bash") {
    context.out << bash_completion(root);
  } else if (shell == "zsh") {
    context.out << zsh_completion(root);
  } else if (shell == "fish") {
    context.out << fish_completion(root);
  } else {
    throw Error(ErrorCode::kInvalidArgument, "no script for `{}`; there are bash, zsh and fish", shell);
  }
  return kExitOk;
}

}  // namespace

void add_completion(CLI::App& app, Context& context) {
  auto shell = std::make_shared<std::string>();  // CLI11 binds by reference; the callback keeps it alive
  auto* cmd = app.add_subcommand("completion", "Print the completion script of a shell");
  cmd->add_option("SHELL", *shell, "bash, zsh or fish")->type_name("bash|zsh|fish")->required();
  cmd->footer(
      examples("  source <(yoke completion bash)                             for this shell\n"
               "  yoke completion zsh > ~/.zfunc/_yoke                       a folder of $fpath\n"
               "  yoke completion fish > ~/.config/fish/completions/yoke.fish"));
  cmd->callback([shell, &app, &context] { context.exit_code = run_completion(*shell, app, context); });
}

}  // namespace yoke::cli
