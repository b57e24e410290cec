#include <CLI/App.hpp>
#include <algorithm>
#include <array>

#include "yoke/cli/command.h"
#include "yoke/cli/help/words.h"

namespace yoke::cli {

// Each function is defined in the file of its command.
using AddCommand = void(CLI::App& cmd, Context& context);
AddCommand add_alloc, add_exec, add_shell;
AddCommand add_admin, add_agent, add_bench, add_bind, add_claim, add_claims, add_complete, add_completion,
    add_container, add_curve, add_devices, add_doctor, add_env, add_extend, add_infer, add_jobs, add_jupyter, add_kill,
    add_logs, add_man, add_metrics, add_mount, add_mounts, add_new, add_plan, add_profile, add_ps, add_release,
    add_reserve, add_run, add_slurm, add_stack, add_stop, add_storage, add_top, add_topo, add_train, add_tune,
    add_unmount, add_visible, add_watch;

namespace {

constexpr auto kCommands = std::to_array<Command>({
    {.name = "admin", .summary = "Check the installation of claims on this machine", .add = add_admin},
    {.name = "agent",
     .summary = "A node of a job on another host; started by `yoke run --hosts`",
     .add = add_agent,
     .is_hidden = true},
    {.name = "alloc", .summary = "Hold nodes of Slurm, for one job after another", .add = add_alloc},
    {.name = "bench",
     .summary = "Measure this machine by small exercises, and what the loader costs",
     .add = add_bench},
    {.name = "bind", .summary = "Show which CPUs and memory each rank would get", .add = add_bind},
    {.name = "claim",
     .summary = "Take devices that nobody else uses, while a program runs or for a time",
     .add = add_claim},
    {.name = "claims", .summary = "List who has claimed which devices, and who waits", .add = add_claims},
    {.name = "container", .summary = "Run programs in containers that have claimed devices", .add = add_container},
    {.name = "curve", .summary = "Draw the loss and other metrics of training runs", .add = add_curve},
    {.name = "devices",
     .summary = "List the devices of this machine and what they are doing",
     .add = add_devices,
     .alias = "ls"},
    {.name = "doctor", .summary = "Look for what keeps programs from using the devices well", .add = add_doctor},
    {.name = "env", .summary = "Make Python environments, and run programs in them", .add = add_env},
    {.name = "exec", .summary = "Run a command on each node of a held allocation", .add = add_exec},
    {.name = "extend", .summary = "Put off the end of a claim", .add = add_extend},
    {.name = "infer", .summary = "Predict all samples of an input with a trained model", .add = add_infer},
    {.name = "jobs", .summary = "List what runs here under `yoke run` and `yoke train`", .add = add_jobs},
    {.name = "jupyter", .summary = "Install notebook kernels that claim devices while they run", .add = add_jupyter},
    {.name = "kill", .summary = "End processes on devices", .add = add_kill, .rewrite = with_signal_option},
    {.name = "logs", .summary = "Print what the ranks of a running job printed last", .add = add_logs},
    {.name = "metrics", .summary = "Print or serve what the devices are doing, for Prometheus", .add = add_metrics},
    {.name = "mount", .summary = "Mount a folder of another host by sshfs, without hangs", .add = add_mount},
    {.name = "mounts", .summary = "List mounted remote folders, and whether their servers answer", .add = add_mounts},
    {.name = "plan", .summary = "Predict how a training scales to many devices, and what that costs", .add = add_plan},
    {.name = "profile",
     .summary = "Name the bottleneck of a training",
     .add = add_profile,
     .rewrite = with_repeated_paths},
    {.name = "ps", .summary = "List the processes on all devices, and what they belong to", .add = add_ps},
    {.name = "release", .summary = "Give claimed devices back", .add = add_release},
    {.name = "reserve", .summary = "Reserve devices for a later time", .add = add_reserve},
    {.name = "run", .summary = "Start a program once for each rank, on one machine or several", .add = add_run},
    {.name = "shell", .summary = "Open a shell on a node of a held allocation", .add = add_shell},
    {.name = "slurm", .summary = "Write and check batch scripts, and watch jobs of Slurm", .add = add_slurm},
    {.name = "stack", .summary = "Show where the ranks of a job are: native and Python stacks", .add = add_stack},
    {.name = "stop", .summary = "End a job that runs under `yoke run`, and wait for its end", .add = add_stop},
    {.name = "storage",
     .summary = "Show where your data can be, how fast and full it is, and what fills it",
     .add = add_storage},
    {.name = "top", .summary = "Watch devices and their processes on a live page", .add = add_top},
    {.name = "topo", .summary = "Show how devices, network cards and processors are connected", .add = add_topo},
    {.name = "train", .summary = "Train a network that comes with yoke", .add = add_train},
    {.name = "tune",
     .summary = "Find the fastest batch size of a training",
     .add = add_tune,
     .rewrite = with_joined_option,
     .object = "batch"},
    {.name = "unmount", .summary = "End the mount of a remote folder, also of a dead one", .add = add_unmount},
    {.name = "visible", .summary = "Explain which GPUs programs see, or start one that sees some", .add = add_visible},
    {.name = "watch", .summary = "Run a program, and tell at its end how well it used its devices", .add = add_watch},
    {.name = "new", .summary = "Begin a training program of your own", .add = add_new},
    {.name = "completion", .summary = "Print the completion script of a shell", .add = add_completion},
    {.name = "complete",
     .summary = "Print what may stand at the end of a command line",
     .add = add_complete,
     .is_hidden = true,
     .describes_all = true},
    {.name = "man", .summary = "Print a man page", .add = add_man, .is_hidden = true, .describes_all = true},
});

}  // namespace

std::span<const Command> command_table() { return kCommands; }

const Command* find_command(std::string_view name) {
  const auto found = std::ranges::find_if(kCommands, [&](const Command& command) {
    return command.name == name || (!command.alias.empty() && command.alias == name);
  });
  return found == kCommands.end() ? nullptr : &*found;
}

namespace {

/// Adds the exit status to the help of `cmd` and of its actions, where help does not tell it.
void add_exit_status(CLI::App& cmd) {
  for (auto* action : cmd.get_subcommands([](CLI::App*) { return true; })) add_exit_status(*action);
  if (cmd.get_footer().find("xit status") != std::string::npos) return;
  cmd.footer(cmd.get_footer() + "\n\nExit status: 0, or that of an error as `yoke --help` lists them.");
}

}  // namespace

void add_commands(CLI::App& app, Context& context, const Command* used) {
  for (const auto& command : kCommands) {
    auto* cmd = app.add_subcommand(std::string(command.name), std::string(command.summary));
    if (!command.alias.empty()) cmd->alias(std::string(command.alias));
    if (command.is_hidden) cmd->group("");
    if (used == nullptr || (used != &command && !used->describes_all)) continue;
    command.add(*cmd, context);
    add_exit_status(*cmd);
  }
}

}  // namespace yoke::cli
