// Rules about launchers and networks: whether torchrun, accelerate, mpirun and the variables of ranks fit the job.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

/// Calls `visit` for each launcher that srun or the script itself starts, with the nodes and tasks that run it.
void for_each_launcher(const Subject& subject,
                       const std::function<void(const std::string& launcher, const std::vector<OptionWord>& words,
                                                const Layout& layout, bool is_step)>& visit) {
  if (subject.is_command_line || subject.script.is_het()) return;
  const auto tell = [&](const std::vector<OptionWord>& words, const Layout& layout, bool is_step) {
    const auto launcher = launcher_of(words);
    if (!launcher.empty() && launcher != "yoke run") visit(launcher, words, layout, is_step);
  };
  for (const auto& step : steps_of(subject)) tell(program_words(*step.command), step.layout, true);
  const auto job = layout_of(subject.script.job());
  for (const auto& command : subject.script.commands) {
    if (command.name != "srun") tell(command.words, job, false);
  }
}

void check_standalone(const Subject& subject, Finder& finder) {
  for_each_launcher(subject, [&](const std::string& launcher, const std::vector<OptionWord>& words,
                                 const Layout& layout, bool is_step) {
    const auto nodes = layout.nodes;
    const auto is_standalone =
        std::ranges::find_if(words, [](const OptionWord& word) { return word.text == "--standalone"; });
    if (is_standalone == words.end()) return;
    const auto asked = program_option(words, "nnodes");
    const int64_t count = asked && asked->is_known() ? parse_count(asked->text).value_or(0) : 0;
    if (count > 1) {
      finder.add(
          is_standalone->line,
          fmt::format("{} --standalone meets others at localhost alone, and waits there for the {} nodes of --nnodes",
                      launcher, count));
    } else if (is_step && nodes && *nodes > 1) {
      finder.add(is_standalone->line,
                 fmt::format("{} --standalone trains on each of the {} nodes alone, {} times the same", launcher,
                             *nodes, *nodes));
    }
  });
}

void check_nnodes(const Subject& subject, Finder& finder) {
  for_each_launcher(subject, [&](const std::string& launcher, const std::vector<OptionWord>& words,
                                 const Layout& layout, bool is_step) {
    const auto nodes = layout.nodes;
    const auto given = program_option(words, launcher == "accelerate launch" ? "num-machines" : "nnodes");
    const auto count = given && given->is_known() ? parse_count(given->text) : std::nullopt;
    if (is_step && count == layout.ntasks) return;  // a launcher for each rank is a node to torchrun
    // Several launchers by hand, one in each iteration of a loop or each step, are not counted.
    if (!count || !nodes || *count == *nodes || (!is_step && *nodes > 1)) return;
    const auto steps = steps_of(subject);
    const auto is_one_of_many = [&](const Step& step) {
      return step.is_background || step.is_in_loop || step.request.has("relative") || step.request.has("nodelist");
    };
    if (std::ranges::any_of(steps, is_one_of_many)) return;
    const auto shown = fmt::format("{}", counted(*nodes, "node"));
    finder.add(given->line, *count > *nodes
                                ? fmt::format("{} waits for {} nodes, but runs on {}", launcher, *count, shown)
                                : fmt::format("{} is told to use {}, but runs on {}: they do not train together",
                                              launcher, counted(*count, "node"), shown));
  });
}

bool starts_launcher(const Script& script) {
  return std::ranges::any_of(script.commands,
                             [](const Command& command) { return !launcher_of(command.words).empty(); });
}

void check_world_size(const Subject& subject, Finder& finder) {
  const auto& script = subject.script;
  if (subject.is_command_line || script.is_het() || starts_launcher(script)) return;
  auto steps = steps_of(subject);
  std::erase_if(steps, [](const Step& step) { return is_small_program(program_words(*step.command)); });
  // "${step[@]}" may be a step too.
  const bool may_start_more = std::ranges::any_of(script.commands, [](const Command& command) {
    return !command.words.front().is_known() && command.words.front().text.starts_with("$");
  });
  if (steps.empty() || may_start_more) return;
  for (const auto& assignment : assignments_of(script)) {
    const auto size = assignment.name == "WORLD_SIZE" ? parse_count(assignment.value.text) : std::nullopt;
    if (!size) continue;
    // A task may start a process for each GPU of its node itself (torch.multiprocessing.spawn).
    const bool is_right = std::ranges::any_of(steps, [&](const Step& step) {
      const auto& layout = step.layout;
      return !layout.ntasks || *layout.ntasks == *size ||
             (layout.nodes && layout.gpus_per_node && *layout.nodes * *layout.gpus_per_node == *size);
    });
    if (is_right) continue;
    const auto ntasks = *steps.front().layout.ntasks;
    finder.add(assignment.line,
               fmt::format("WORLD_SIZE={}, but srun starts {}: ranks {}", *size, counted(ntasks, "task"),
                           *size > ntasks ? "wait for others that never come" : "from this number on are refused"));
  }
}

void check_loopback(const Subject& subject, Finder& finder) {
  const auto nodes = layout_of(subject.script.job()).nodes;
  if (subject.is_command_line || !nodes || *nodes < 2) return;
  for (const auto& assignment : assignments_of(subject.script)) {
    const auto& name = assignment.name;
    if (!has_word("NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME RCCL_SOCKET_IFNAME", name)) continue;
    auto value = std::string_view(assignment.value.text);
    if (value.starts_with("=")) value.remove_prefix(1);
    if (value != "lo") continue;
    finder.add(assignment.line,
               fmt::format("{}=lo is the network within a host, but the job has {} nodes", name, *nodes));
  }
}

void check_mpirun_count(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  if (subject.is_command_line || subject.script.is_het() || job.has("overcommit") || job.has("ntasks-per-gpu")) return;
  if (!job.has("ntasks") && !job.has("ntasks-per-node")) return;
  const auto ntasks = layout_of(job).ntasks;
  for (const auto& command : subject.script.commands) {
    if (command.name != "mpirun" && command.name != "mpiexec" && command.name != "orterun") continue;
    std::optional<OptionWord> given;
    bool shares = false;
    for (size_t i = 1; i < command.words.size() && !given; ++i) {
      const auto& text = command.words[i].text;
      shares |=
          contains_any(text, {"oversubscribe", "hostfile", "machinefile"}) || has_word("-H --host --map-by", text);
      for (const auto* option : {"-np", "-n", "--np", "-c"}) {
        if (text == option && i + 1 < command.words.size()) given = command.words[i + 1];
      }
    }
    const auto count = given && given->is_known() ? parse_count(given->text) : std::nullopt;
    if (!count || !ntasks || shares || *count <= *ntasks) continue;
    finder.add(given->line, fmt::format("{} starts {} ranks, but the job has {}: Open MPI says that there are not "
                                        "enough slots, and others put several ranks on one CPU",
                                        command.name, *count, counted(*ntasks, "task")));
  }
}

constexpr Rule kLaunchRules[] = {
    {"standalone-on-nodes", Severity::kWarning, "", "", "torchrun --standalone on several nodes",
     "It makes a rendezvous of its own on each node.",
     "Write --nnodes=$SLURM_NNODES --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT.",
     "torch/distributed/run.py, run: --standalone is --rdzv-backend=c10d --rdzv-endpoint=localhost:0",
     check_standalone},
    {"nnodes-mismatch", Severity::kWarning, "", "", "A launcher's number of nodes is not that of the job",
     "It waits for nodes that do not come, or leaves some out.", "Write --nnodes=$SLURM_NNODES.",
     "torch/distributed/run.py, config_from_args: min_nodes and max_nodes; accelerate/commands/launch.py, "
     "--num_machines",
     check_nnodes},
    {"world-size-mismatch", Severity::kWarning, "", "", "WORLD_SIZE is not the number of tasks",
     "All ranks must agree on their number.", "export WORLD_SIZE=$SLURM_NTASKS",
     "torch/distributed/rendezvous.py, _env_rendezvous_handler", check_world_size},
    {"loopback-interface", Severity::kWarning, "", "", "NCCL or Gloo on the loopback interface, with several nodes",
     "Other hosts cannot be reached through it.", "Name the interface of the network between nodes, or leave it out.",
     "NVIDIA/nccl src/misc/socket.cc, ncclFindInterfaces: the interfaces of NCCL_SOCKET_IFNAME alone", check_loopback},
    {"mpirun-count", Severity::kWarning, "", "", "mpirun with more ranks than the job has tasks",
     "Slots of mpirun are the tasks of the job.", "Leave -np out, or ask for as many tasks.",
     "openpmix/prrte src/mca/ras/slurm/ras_slurm_module.c: the slots are SLURM_TASKS_PER_NODE", check_mpirun_count},
};

}  // namespace

std::span<const Rule> launch_rules() { return kLaunchRules; }

}  // namespace yoke::slurm::check
