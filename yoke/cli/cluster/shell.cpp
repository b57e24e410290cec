// `yoke shell`: an interactive shell on a node of a held allocation.
#include <unistd.h>

#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/cli/command.h"
#include "yoke/cli/options/allocation.h"
#include "yoke/cli/options/value.h"
#include "yoke/slurm/job/holding.h"

namespace yoke::cli {
namespace {

struct ShellArgs {
  std::string in, node;
};

int run_shell(const ShellArgs& args, Context& context) {
  const auto allocation =
      cluster::find_allocation(args.in, context.installation.executable.string(), context.environment);
  const auto node = args.node.empty() ? allocation.nodes.front().name : args.node;
  check_node(allocation, node);
  auto words = cluster::srun_in_job(allocation.job, node);
  if (isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) words.emplace_back("--pty");
  words.push_back(context.environment.value_or("SHELL", "/bin/sh"));
  const auto srun = find_program(words[0], context.environment);
  if (!srun) throw Error(ErrorCode::kNotFound, "srun is not in PATH: Slurm is not installed here");
  auto environment = slurm::without_outer_job(context.environment);
  environment.erase_if([](const auto& name) { return slurm::belongs_to_step(name) && !name.starts_with("SLURM"); });
  const auto variables = environment.to_strings();
  context.out.flush();
  execve(srun->c_str(), exec_pointers(words).data(), exec_pointers(variables).data());
  throw system_error(errno, "starting srun");
}

}  // namespace

void add_shell(CLI::App& cmd, Context& context) {
  auto& args = add_args<ShellArgs>(cmd, context, run_shell);
  add_in_option(cmd, args.in);
  add_value(cmd, "NODE", args.node, "", "The node; the first one unless given");
  cmd.footer(examples(
      "  yoke shell                 on the first node of the only allocation\n"
      "  yoke shell --in 4711 n2    on node n2 of allocation 4711\n"
      "\n"
      "The shell is $SHELL, as a step of the job (srun --overlap --pty), with the devices of the node and the\n"
      "folder of this shell. Without a terminal, it reads commands from standard input.\n"
      "\n"
      "Exit status: that of the shell; 66 if there is no such allocation or node."));
}

}  // namespace yoke::cli
