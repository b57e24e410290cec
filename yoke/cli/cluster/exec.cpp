// `yoke exec`: run a command on the nodes of a held allocation.
#include "yoke/cluster/exec.h"

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/node_request.h"
#include "yoke/cli/options/allocation.h"
#include "yoke/cli/options/color.h"
#include "yoke/cli/options/value.h"

namespace yoke::cli {
namespace {

struct ExecArgs {
  std::string in;
  std::vector<std::string> nodes;
  bool all = false;
  ColorMode color = ColorMode::kAuto;
};

int run_exec(const ExecArgs& args, Context& context) {
  if (context.rest.empty())
    throw Error(ErrorCode::kInvalidArgument, "no command was given; for example `yoke exec --in last -- nvidia-smi`");
  if (args.all && !args.nodes.empty()) throw Error(ErrorCode::kInvalidArgument, "give --all or --node, not both");
  auto allocation = open_allocation(args.in, context);
  const auto hosts = allocation.take_hosts(args.nodes);
  const cluster::ExecOptions options{.name = "yoke exec", .has_prefixes = args.nodes.size() != 1, .color = args.color};
  const nlohmann::json request = {{"argv", context.rest},
                                  {"environment", environment_for_nodes(context.environment, ForNodes::kOfSlurm)},
                                  {"folder", working_folder()},
                                  {"silence_ms", options.silence.count()}};
  return exec_on_nodes(hosts, request, options, context.environment);
}

}  // namespace

void add_exec(CLI::App& cmd, Context& context) {
  auto& args = add_args<ExecArgs>(cmd, context, run_exec);
  add_in_option(cmd, args.in);
  cmd.add_flag("--all", args.all, "On all nodes; the default");
  add_values(cmd, "--node", args.nodes, "NAME",
             "On this node alone, and of one node print the bytes as they are, without [node] before each line; "
             "can be repeated");
  add_color_option(cmd, args.color);
  add_program(cmd, "PROGRAM", "What to run on each node, and its arguments; every word from here on is its own");
  cmd.footer(
      examples("  yoke exec --in 4711 -- nvidia-smi -L     on each node of allocation 4711\n"
               "  yoke exec -- df -h /tmp                  in the only allocation\n"
               "  yoke exec --node n2 -- cat /etc/os-release\n"
               "\n"
               "The command has the environment and the folder of this shell, but the devices of its node, and no\n"
               "input. Ctrl-C is passed on. Ctrl-Z stops this program alone; after 15 s the nodes end the command.\n"
               "\n"
               "Exit status: the highest of the commands; 75 if a node is lost, 66 if there is no such allocation."));
}

}  // namespace yoke::cli
