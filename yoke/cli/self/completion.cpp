// `yoke completion`: print a shell's completion script.
#include <memory>

#include "yoke/cli/command.h"
#include "yoke/cli/help/complete.h"
#include "yoke/cli/options/value.h"

namespace yoke::cli {

void add_completion(CLI::App& cmd, Context& context) {
  auto shell = std::make_shared<std::string>();  // CLI11 keeps references to *shell; the callback owns it
  add_value(cmd, "SHELL", *shell, "bash|zsh|fish", "bash, zsh or fish")->required();
  cmd.footer(
      examples("  source <(yoke completion bash)                             for this shell\n"
               "  yoke completion zsh > ~/.zfunc/_yoke                       a folder of $fpath\n"
               "  yoke completion fish > ~/.config/fish/completions/yoke.fish"));
  cmd.callback([shell, &context] { context.out << completion_script(*shell); });
}

}  // namespace yoke::cli
