// `yoke complete`: print the words that may complete a command line. Completion scripts call it; help omits it.
#include "yoke/cli/help/complete.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/external.h"
#include "yoke/cli/frame/recipes.h"
#include "yoke/cli/options/value.h"
#include "yoke/launch/job/job_client.h"

namespace yoke::cli {
namespace {

/// Returns each job's number, and also its run id if it has one.
std::vector<CompletionWord> running_jobs() {
  std::vector<CompletionWord> result;
  for (const auto& [address, job] : launch::find_jobs()) {
    const auto program = job ? printable(fmt::format("{}", fmt::join(job->argv, " "))) : std::string("does not answer");
    result.push_back({std::to_string(address.pid), program});
    if (job && job->run_id != "none" && !job->has_random_id) result.push_back({job->run_id, program});
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

void add_complete(CLI::App& cmd, Context& context) {
  add_program(cmd, "WORD", "The words after `yoke`; the last one is being typed, and may be empty");
  cmd.footer(examples("  yoke complete -- run --bind ''"));
  cmd.callback([&cmd, &context] {
    const auto& installation = context.installation;
    context.out << to_text(complete(describe(*cmd.get_parent()), context.rest,
                                    {.jobs = running_jobs,
                                     .recipes = [&] { return recipe_words(installation); },
                                     .external_commands = [&] { return external_words(installation); }}));
  });
}

}  // namespace yoke::cli
