// `yoke completion`: print a shell's completion script. `yoke complete`, which is hidden, answers what it asks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>

#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/complete.h"
#include "yoke/cli/external.h"
#include "yoke/cli/recipes.h"
#include "yoke/launch/job/job_client.h"

namespace yoke::cli {
namespace {

std::string script_of(const std::string& shell) {
  if (shell == "bash") return bash_completion();
  return shell == "zsh" ? zsh_completion() : fish_completion();
}

/// By their numbers, and by their run ids where they have one.
std::vector<CompletionWord> running_jobs() {
  std::vector<CompletionWord> result;
  for (const auto& [address, job] : launch::find_jobs()) {
    const auto program = job ? printable(fmt::format("{}", fmt::join(job->argv, " "))) : std::string("does not answer");
    result.push_back({std::to_string(address.pid), program});
    if (job && job->run_id != "none") result.push_back({job->run_id, program});
  }
  return result;
}

std::vector<CompletionWord> recipe_words(const Installation& installation) {
  std::vector<CompletionWord> result;
  for (const auto& recipe : list_recipes(installation)) result.push_back({recipe.name, recipe.summary});
  return result;
}

std::vector<CompletionWord> external_words(const Installation& installation) {
  std::vector<CompletionWord> result;
  for (const auto& name : external_commands(installation)) result.push_back({name});
  return result;
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
  cmd->callback([shell, &context] { context.out << script_of(*shell); });
}

void add_complete(CLI::App& app, Context& context) {
  auto* cmd = app.add_subcommand("complete", "Print what may stand at the end of a command line")->group("");
  auto words = std::make_shared<std::vector<std::string>>();  // as above
  cmd->add_option("WORD", *words, "The words after `yoke`; the last one is being typed, and may be empty")
      ->type_name(kProgramArguments)
      ->expected(0, -1);
  cmd->footer(examples("  yoke complete -- run --bind ''"));
  cmd->callback([words, &app, &context] {
    const auto& installation = context.installation;
    context.out << to_text(complete(describe(app), context.rest,
                                    {.jobs = running_jobs,
                                     .recipes = [&] { return recipe_words(installation); },
                                     .external_commands = [&] { return external_words(installation); }}));
  });
}

}  // namespace yoke::cli
