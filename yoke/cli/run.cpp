// `yoke run`: start a program once for each rank on this machine, with torchrun's environment.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/cli/command.h"
#include "yoke/cli/num_ranks.h"
#include "yoke/launch/plan.h"
#include "yoke/launch/supervisor.h"

namespace yoke::cli {
namespace {

struct Args {
  std::string num_ranks = "1";
  double grace_seconds = 10;
  uint16_t master_port = 0;
  bool no_prefix = false;
  bool plan = false;
};

launch::LaunchSpec to_spec(const Args& args, const Context& context) {
  if (context.rest.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "run: no program; for example `yoke run -n 2 -- ./train --epochs 5`");
  }
  launch::LaunchSpec spec;
  spec.argv = context.rest;
  spec.environment = context.environment;
  spec.num_ranks = parse_num_ranks(args.num_ranks, device::count_cpus(), [] { return device::count_gpus(); });
  spec.grace = std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(args.grace_seconds));
  if (args.master_port != 0) spec.master_port = args.master_port;
  if (args.no_prefix) spec.prefix = launch::Prefix::kNone;
  return spec;
}

/// Only what yoke adds to the environment or changes in it, so that a plan can be shown to others.
nlohmann::ordered_json to_json(const std::vector<launch::RankPlan>& ranks, const Environment& before) {
  auto result = nlohmann::ordered_json::array();
  for (const auto& rank : ranks) {
    nlohmann::ordered_json environment;
    for (const auto& variable : rank.environment) {
      const auto equals = variable.find('=');
      const auto name = variable.substr(0, equals), value = variable.substr(equals + 1);
      if (before.find(name) != value) environment[name] = value;
    }
    result.push_back({{"rank", rank.rank}, {"argv", rank.argv}, {"environment", environment}});
  }
  return result;
}

int run(const Args& args, Context& context) {
  const auto spec = to_spec(args, context);
  if (!args.plan) return launch::launch(spec);
  // The port is chosen at the start: 0 where none was asked for.
  const auto ranks = launch::plan(spec, {device::count_cpus().num_cpus, spec.master_port.value_or(0)});
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;  // arguments may be any bytes
  context.out << to_json(ranks, context.environment).dump(2, ' ', false, kReplace) << '\n';
  return kExitOk;
}

}  // namespace

void add_run(CLI::App& app, Context& context) {
  auto args = std::make_shared<Args>();  // CLI11 binds by reference; the callback keeps it alive
  auto program = std::make_shared<std::vector<std::string>>();
  auto* cmd = app.add_subcommand("run", "Start a program once for each rank on this machine");
  cmd->add_option("-n,--nproc-per-node", args->num_ranks,
                  "Ranks: a number; gpu, one for each GPU; cpu, one for each "
                  "processor; auto, gpu where there is one and else cpu")
      ->type_name("auto|gpu|cpu|N")
      ->capture_default_str();
  cmd->add_option("--grace", args->grace_seconds, "Time between asking the ranks to stop and killing them")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e6).description(""))
      ->capture_default_str();
  cmd->add_option("--master-port", args->master_port, "Port of the ranks' store on 127.0.0.1; otherwise a free one")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535).description(""));
  cmd->add_flag("--no-prefix", args->no_prefix, "Do not begin lines with [rank]");
  cmd->add_flag("--plan", args->plan, "Print what would be started, as JSON, and start nothing");
  cmd->add_option("PROGRAM", *program,
                  "What to start, with its arguments; every word from here on is its own. In an "
                  "argument, ${local_rank} becomes the rank")
      ->type_name("[ARG...]")
      ->expected(0, -1);
  cmd->footer(
      examples("  yoke run -n 2 -- ./train --epochs 5      two ranks of a C++ program\n"
               "  yoke run -n gpu -- python train.py       one rank for each GPU\n"
               "  yoke run -n 4 --no-prefix -- hostname    lines as they are\n"
               "  yoke run -n 2 --plan -- ./train          what each rank would get\n"
               "\n"
               "The exit status is that of the first rank that failed, 128 and the signal's number\n"
               "if a signal ended it, 127 if the program is not found."));
  cmd->callback([args, program, &context] { context.exit_code = run(*args, context); });
}

}  // namespace yoke::cli
