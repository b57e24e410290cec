// `yoke train`: run a recipe, a complete training that comes with yoke, on every device of this machine.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "yoke/cli/command.h"
#include "yoke/cli/frame/recipes.h"
#include "yoke/cli/help/words.h"
#include "yoke/cli/options/value.h"
#include "yoke/launch/job/supervisor.h"
#include "yoke/launch/torchrun/values.h"

namespace yoke::cli {
namespace {

struct TrainArgs {
  std::optional<std::string> num_ranks;
  bool list = false;
  bool json = false;
};

void print_list(const TrainArgs& args, Context& context) {
  const auto recipes = list_recipes(context.installation);
  if (args.json) {
    auto json = nlohmann::ordered_json::array();
    for (const auto& recipe : recipes) {
      nlohmann::ordered_json one{{"name", recipe.name}, {"summary", recipe.summary}};
      if (recipe.ranks) one["ranks"] = *recipe.ranks;
      json.push_back(std::move(one));
    }
    print_json(json, context);
    return;
  }
  size_t width = 0;
  for (const auto& recipe : recipes) width = std::max(width, recipe.name.size());
  for (const auto& recipe : recipes) context.out << fmt::format("{:<{}}  {}\n", recipe.name, width, recipe.summary);
  if (recipes.empty()) context.out << why_no_recipes(context.installation) << '\n';
}

bool only_asks_for_help(const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [](const auto& word) { return word == "--help" || word == "-h"; });
}

int64_t choose_num_ranks(const std::optional<std::string>& text, const Recipe& recipe,
                         const std::vector<std::string>& words) {
  const auto count_gpus = [] { return device::count_gpus(); };
  if (only_asks_for_help(words)) return 1;
  if (text) return launch::parse_num_ranks(*text, device::count_cpus(), count_gpus);
  return recipe.ranks ? *recipe.ranks : launch::default_num_ranks(device::count_cpus(), count_gpus);
}

int run_train(const TrainArgs& args, Context& context) {
  if (args.list) {
    print_list(args, context);
    return kExitOk;
  }
  if (context.rest.empty()) refuse("which recipe? See `yoke train --list`");
  auto words = context.rest;
  const auto recipe = find_recipe(context.installation, words.front());
  words.erase(words.begin());
  auto num_ranks = extract_option(words, "-n", "--nproc-per-node");
  if (!num_ranks) num_ranks = args.num_ranks;

  launch::Launch job;
  auto& spec = job.spec;
  spec.name = "yoke train";
  spec.argv = {recipe.program.string()};
  spec.argv.insert(spec.argv.end(), words.begin(), words.end());
  spec.environment = context.environment;
  spec.num_ranks = choose_num_ranks(num_ranks, recipe, words);
  spec.prefix = launch::Prefix::kAllButRankZero;
  return run_job(job, nlohmann::json());
}

}  // namespace

void add_train(CLI::App& cmd, Context& context) {
  auto& args = add_args<TrainArgs>(cmd, context, run_train);
  add_value(cmd, "-n,--nproc-per-node", args.num_ranks, "auto|gpu|cpu|N",
            "Ranks, as in `yoke run`; otherwise one for each GPU, or without any one for each memory node and at "
            "least two");
  cmd.add_flag("--list", args.list, "List the recipes");
  cmd.add_flag("--json", args.json, "With --list: as JSON");
  add_program(cmd, "RECIPE", "Which one; every other word after it is the recipe's own");
  cmd.footer(
      examples("  yoke train --list                           what there is\n"
               "  yoke train fashion-mnist                    on every device\n"
               "  yoke train fashion-mnist -n 2 --epochs 1    two ranks, one epoch\n"
               "  yoke train fashion-mnist --help             the recipe's own options\n"
               "\n"
               "The exit status is that of the first rank that failed, 128 plus the signal's number if a signal ended\n"
               "it, 66 if there is no such recipe."));
}

}  // namespace yoke::cli
