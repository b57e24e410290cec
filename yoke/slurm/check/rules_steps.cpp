// Rules about what a script starts: srun, launchers, steps in the background.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"
#include "yoke/slurm/words/cpu_bind.h"

namespace yoke::slurm::check {
namespace {

bool is_parallel_starter(std::string_view name) {
  constexpr std::string_view kNames =
      "srun mpirun mpiexec mpiexec.hydra mpirun_rsh prun prterun ibrun aprun jsrun orterun parallel pdsh clush ssh "
      "yoke horovodrun charmrun ray dask ipcluster flux hq launch sbcast sbatch salloc pbsdsh xargs submitit nextflow "
      "snakemake torchrun_jsc";
  return has_word(kNames, name);
}

/// Whether some text of the script may start tasks in a way that the reader does not see.
bool mentions_starter(const Script& script) {
  for (const auto* word :
       {"srun", "mpirun", "mpiexec", "prun ", "ibrun", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES",
        "SLURM_JOB_NUM_NODES", "SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_STEP", "hostfile",
        "machinefile", "parallel ", "pdsh", "clush"}) {
    for (size_t i = 0; i < script.lines.size(); ++i) {
      const auto begin = script.lines[i].find_first_not_of(" \t");
      if (begin == std::string::npos || script.lines[i][begin] == '#') continue;
      if (script.lines[i].find(word) != std::string::npos) return true;
    }
  }
  return false;
}

void check_missing_srun(const Subject& subject, Finder& finder) {
  const auto& script = subject.script;
  if (subject.is_command_line || !script.is_shell || script.is_het()) return;
  const auto layout = layout_of(script.job());
  const auto ntasks = layout.ntasks.value_or(layout.nodes.value_or(1));
  if (ntasks <= 1 || mentions_starter(script)) return;
  if (std::ranges::any_of(script.commands, [](const Command& c) { return is_parallel_starter(c.name); })) return;
  for (const auto& command : script.commands) {
    if (command.shell->is_in_substitution || command.shell->is_in_function || command.words.empty()) continue;
    const auto& first = command.words[0].text;
    const bool is_python = command.name.starts_with("python");
    const bool is_program = (first.starts_with("./") || first.starts_with("../")) && !first.ends_with(".sh");
    if (!is_python && !is_program) continue;
    const auto second = command.words.size() > 1 ? std::string_view(command.words[1].text) : std::string_view();
    if (second == "-c" || second == "-V" || second == "--version" || second == "-m") {
      const auto module = command.words.size() > 2 ? command.words[2].text : std::string();
      if (second != "-m" || module == "venv" || module == "pip" || module == "torch.utils.collect_env") continue;
    }
    if (!launcher_of(command.words).empty()) continue;  // has a rule of its own
    finder.add(
        command.words[0].line,
        fmt::format("{} runs once, on the first node, although the job has {} tasks; nothing starts the others", first,
                    ntasks),
        fmt::format(
            "Write srun {} ...; or ask for one task with --cpus-per-task CPUs if one process with threads is meant.",
            first));
    return;
  }
}

void check_launcher_once(const Subject& subject, Finder& finder) {
  const auto& script = subject.script;
  if (subject.is_command_line || script.is_het()) return;
  const auto nodes = layout_of(script.job()).nodes;
  if (!nodes || *nodes < 2) return;
  for (const auto& command : script.commands) {
    if (command.name == "srun" || is_parallel_starter(command.name) || command.shell->is_in_function) continue;
    if (has_word("echo printf which type command hash pip test ls export module", command.name)) continue;
    const auto launcher = launcher_of(command.words);
    if (launcher.empty() || launcher == "yoke run" || launcher == "deepspeed") continue;
    const auto starts_others = [](const OptionWord& word) {  // DeepSpeed then reaches the other nodes by ssh
      return word.text.starts_with("--deepspeed_hostfile") || word.text.starts_with("--deepspeed_multinode_launcher");
    };
    if (std::ranges::any_of(command.words, starts_others)) continue;
    const auto given = program_option(command.words, launcher == "accelerate launch" ? "num-machines" : "nnodes");
    const bool is_single = program_option(command.words, "standalone").has_value() || !given || given->text == "1";
    finder.add(command.words[0].line,
               is_single ? fmt::format("{} uses the first node alone, although the job has {} nodes", launcher, *nodes)
                         : fmt::format("{} runs on the first node alone, and waits there for the other {} nodes",
                                       launcher, *nodes - 1),
               fmt::format("Start it with srun --ntasks-per-node=1, once on each node."));
  }
}

void check_launcher_many(const Subject& subject, Finder& finder) {
  for (const auto& step : steps_of(subject)) {
    const auto launcher = launcher_of(program_words(*step.command));
    if (launcher.empty() || launcher == "yoke run") continue;
    const auto tasks = step.layout.ntasks_per_node;
    if (!tasks || *tasks < 2) continue;
    const auto words = program_words(*step.command);
    const auto workers = program_option(words, "nproc-per-node");
    if (workers && workers->text == "1") continue;
    // torchrun starts one worker unless it is told otherwise; several may be the ranks of one training.
    const bool is_torchrun = launcher.starts_with("torchrun") || launcher.starts_with("python -m torch");
    const bool has_one = is_torchrun && !workers && subject.script.text.find("PET_") == std::string::npos;
    const auto nnodes = program_option(words, "nnodes");
    if (has_one && nnodes && nnodes->text != "1") continue;
    finder.add(
        step.line(),
        has_one
            ? fmt::format("srun starts {} on each node {} times, and each one starts one worker, which trains alone",
                          launcher, *tasks)
            : fmt::format("srun starts {} on each node {} times, and each one starts workers of its own{}", launcher,
                          *tasks,
                          workers && workers->is_known() ? fmt::format(" ({} times {})", *tasks, workers->text) : ""),
        "Give srun --ntasks-per-node=1 (and -n as the number of nodes), with all CPUs for that task.");
  }
}

void check_srun_mpirun(const Subject& subject, Finder& finder) {
  for (const auto& step : steps_of(subject)) {
    const auto words = program_words(*step.command);
    if (words.empty() || step.layout.ntasks.value_or(2) <= 1) continue;
    const auto base = base_name(words[0].text);
    if (base != "mpirun" && base != "mpiexec") continue;
    finder.add(step.line(), fmt::format("srun starts {} once for each task, and each one starts all ranks", base),
               fmt::format("Use srun or {}, not both.", base));
  }
}

void check_srun_script_options(const Subject& subject, Finder& finder) {
  for (const auto& command : subject.script.commands) {
    if (command.name != "srun" || subject.is_command_line) continue;
    const auto words = program_words(command);
    if (words.empty() && !command.options.has_unknown && command.shell->redirections.empty() &&
        command.options.problems.empty()) {
      const bool asks_help = std::ranges::any_of(command.options.given, [](const GivenOption& given) {
        return has_word("help version usage pty interactive", given.spec->name);
      });
      if (!asks_help) finder.add(command.words.front().line, "srun has no program to start");
    }
  }
}

void check_step_nodes(const Subject& subject, Finder& finder) {
  if (subject.is_command_line) return;
  find_missing_components(subject, finder);
  if (subject.script.is_het()) return;
  const auto& job = subject.script.job();
  const auto has = hosts_in(job.value("nodelist"));
  const auto nodes = job.nodes();
  // With more nodes than the list names, Slurm chooses the others.
  const bool knows_all =
      !has.empty() && !job.has_unknown() &&
      (job.has("nodes")    ? nodes && *nodes <= static_cast<int64_t>(has.size())
       : job.has("ntasks") ? job.count("ntasks").value_or(INT64_MAX) <= static_cast<int64_t>(has.size())
                           : true);
  const auto types = job.gpu_types();
  for (const auto& step : steps_of(subject)) {
    find_missing_nodes(subject, step, knows_all ? has : std::vector<std::string>{}, finder);
    const auto asked = hosts_in(step.request.value("nodelist"));
    for (const auto& host : asked) {
      if (!knows_all || std::ranges::find(has, host) != has.end()) continue;
      finder.add(
          step.request.line_of("nodelist"),
          fmt::format(
              "the step asks for node {}, but the job has {}; srun says: Requested node configuration is not available",
              host, job.value("nodelist")));
      break;
    }
    for (const auto& type : step.request.gpu_types()) {
      if (types.empty() || types.contains(type)) continue;
      finder.add(step.line(), fmt::format("the step asks for GPUs of type {}, but the job has {}; srun refuses it",
                                          type, *types.begin()));
    }
  }
}

/// Whether the job surely has no more CPUs than it asks for: no whole nodes, and cores with one thread.
bool has_only_its_cpus(const Subject& subject) {
  if (subject.site == nullptr) return false;
  const auto& job = subject.script.job();
  const auto wanted = job.value("partition");
  for (const auto& [name, partition] : subject.site->partitions) {
    if (job.has("partition") ? name != wanted : !partition.is_default) continue;
    return !partition.is_whole_node && partition.threads_per_core == 1;
  }
  return false;
}

void check_step_size(const Subject& subject, Finder& finder) {
  if (subject.script.is_het() || subject.is_command_line) return;
  const auto& job = subject.script.job();
  const auto whole = layout_of(job);
  for (const auto& step : steps_of(subject)) {
    const auto& request = step.request;
    const auto line = step.line();
    if (const auto range = request.node_range(); range && whole.nodes && range->min > *whole.nodes) {
      finder.add(
          line,
          fmt::format("the step asks for {} nodes, but the job has {}; srun says: Only allocated {} nodes asked for {}",
                      range->min, *whole.nodes, *whole.nodes, range->min));
      continue;
    }
    find_missing_resources(subject, step, whole, finder);
    const auto step_gpus = request.gpus_per_node();
    if (!job.has("exclusive") && step_gpus && whole.gpus_per_node && *step_gpus > *whole.gpus_per_node) {
      finder.add(line, fmt::format("the step asks for {} GPUs on a node, but the job has {}", *step_gpus,
                                   *whole.gpus_per_node));
      continue;
    }
    const auto tasks = request.count("ntasks");
    const bool shares = request.has_any("overcommit hint threads-per-core") ||
                        job.has_any("overcommit exclusive mincpus cpus-per-gpu threads-per-core hint ntasks-per-core");
    const int64_t cpus = whole.ntasks.value_or(0) * whole.cpus_per_task.value_or(1);
    const bool is_counted = job.has_any("ntasks ntasks-per-node cpus-per-task");
    if (tasks && cpus > 0 && is_counted && !shares && *tasks > cpus && !job.asks_for_gpus()) {
      const bool is_sure = has_only_its_cpus(subject);
      finder.add_as(
          is_sure ? Severity::kError : Severity::kWarning, line,
          fmt::format(
              "the step asks for {} tasks, but the job has {}; srun says: More processors requested than permitted{}",
              *tasks, counted(cpus, "CPU"), is_sure ? "" : ", unless nodes are given as a whole"));
    }
  }
}

/// What gives each task of a step one CPU or core unless --cpus-per-task asks for more; empty if nothing does.
std::string confining_option(const Subject& subject, const Request& step) {
  for (const auto* option : {"exact", "exclusive", "hint", "threads-per-core", "ntasks-per-core"}) {
    if (step.has(option)) return std::string("--") + option;
  }
  if (step.has("cpu-bind")) {  // srun then ignores --hint of the job
    const auto kind = parse_cpu_bind(step.value("cpu-bind")).effective;
    return kind == "cores" || kind == "threads" || kind == "rank" ? "--cpu-bind=" + kind : "";
  }
  const auto& job = subject.script.job();
  for (const auto* option : {"hint", "threads-per-core"}) {
    if (job.has(option)) return std::string("--") + option;
  }
  for (const auto* variable : {"SLURM_EXACT", "SLURM_CPU_BIND"}) {
    if (assigns(subject.script, variable)) return variable;
  }
  return "";
}

void check_step_cpus(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  if (!job.has("cpus-per-task") || job.value("cpus-per-task") == "1" || assigns(subject.script, "SRUN_CPUS_PER_TASK"))
    return;
  for (const auto& step : steps_of(subject)) {
    if (step.request.has("cpus-per-task") || step.request.has_unknown() || step.request.has("cpus-per-gpu")) continue;
    if (is_small_program(program_words(*step.command))) continue;
    const auto line = step.line();
    const auto reason = confining_option(subject, step.request);
    if (!reason.empty()) {
      // A core with two threads is two CPUs.
      const bool is_perhaps_enough = job.value("cpus-per-task") == "2" && reason != "--cpu-bind=threads" &&
                                     reason != "--threads-per-core" && step.request.value("hint") != "nomultithread" &&
                                     job.value("hint") != "nomultithread";
      finder.add_as(is_perhaps_enough ? Severity::kNote : Severity::kWarning, line,
                    fmt::format("srun does not take over --cpus-per-task {} of the job in Slurm 22.05 and 23.02, so {} "
                                "gives each task one CPU or core",
                                job.value("cpus-per-task"), reason));
      return;
    }
    if (step.request.has("cpu-bind") || step.layout.ntasks_per_node.value_or(1) < 2) continue;
    finder.add_as(
        Severity::kNote, line,
        fmt::format("srun does not take over --cpus-per-task {} of the job in Slurm 22.05 and 23.02: the tasks of a "
                    "node share its CPUs, and each one gets one CPU where the site binds tasks to cores",
                    job.value("cpus-per-task")));
    return;
  }
}

// ---- The background

bool is_wait(const Command& command) { return command.name == "wait" || command.name == "fg"; }

/// Whether a command takes hardly any time, so that a script which has only such ones left ends at once.
bool is_quick(const Command& command) {
  constexpr std::string_view kNames =
      "echo date printf true : export trap set cd mkdir ls cat exit module unset ml local declare cp mv rm touch ln "
      "chmod grep head [ [[ test hostname squeue sacct source . conda deactivate pwd env sort wc sed awk cut tr tee "
      "read shift return which kill pkill nvidia-smi scontrol";
  if (command.name == "sleep" && command.words.size() == 2) {
    return parse_count(command.words[1].text).value_or(INT64_MAX) < 60;
  }
  return has_word(kNames, command.name);
}

void check_no_wait(const Subject& subject, Finder& finder) {
  const auto& commands = subject.script.commands;
  const Command* last = nullptr;
  int64_t end = INT64_MAX;  // the line where the script ends
  for (const auto& command : commands) {
    if (command.shell == nullptr || command.shell->is_in_function || command.shell->is_in_substitution) continue;
    const bool is_certain =
        !command.shell->is_in_condition && !command.shell->is_in_loop && command.shell->subshell == 0;
    if (command.name == "exit" && is_certain && !command.shell->is_background) {
      end = command.words[0].line;
      break;
    }
    if (command.shell->is_background) {
      if (is_work(command)) last = &command;
    } else if (is_wait(command) || !is_quick(command) || (command.shell->is_in_loop && command.name == "sleep")) {
      last = nullptr;  // something waits, or works meanwhile
    }
  }
  if (last == nullptr || subject.script.text.find("wait") != std::string::npos) {
    // `wait` in a function or in a form that the reader does not know
    int64_t number = 0;
    const bool has_wait = std::ranges::any_of(subject.script.lines, [&](const std::string& line) {
      ++number;
      if (last == nullptr || number >= end) return false;
      const bool is_too_early =
          number < last->words[0].line && std::ranges::any_of(commands, [&](const Command& command) {
            return command.name == "wait" && command.words[0].line == number && !command.shell->is_in_function &&
                   !command.shell->is_in_loop;
          });
      if (is_too_early) return false;
      const auto words = words_of(line);
      return std::ranges::any_of(words, [](std::string_view w) { return w == "wait" || w == "wait;" || w == "wait)"; });
    });
    if (last == nullptr || has_wait) return;
  }
  finder.add(
      last->words[0].line,
      fmt::format("{} runs in the background, and nothing waits for it: the job ends at once, and Slurm kills it",
                  last->name));
}

void check_serial_steps(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  const auto whole = layout_of(job);
  int64_t count = 0;
  int64_t num_with_gpus = 0;  // steps that share CPUs, but take all GPUs
  const Step *first = nullptr, *first_with_gpus = nullptr;
  const auto steps = steps_of(subject);
  // A number of CPUs that srun takes over from the job implies --exact.
  const bool inherits = subject.version && *subject.version >= kInheritsCpus;
  const bool is_exact = (inherits && (job.has("cpus-per-task") || job.has("cpus-per-gpu"))) ||
                        assigns(subject.script, "SRUN_CPUS_PER_TASK");
  for (const auto& step : steps) {
    if (!step.is_background) continue;
    const auto& request = step.request;
    const bool shares = is_exact || request.has_unknown() ||
                        request.has_any(
                            "exact overlap exclusive cpus-per-task threads-per-core nodelist relative exclude "
                            "oversubscribe cpus-per-gpu");
    const bool takes_gpus =
        job.asks_for_gpus() && !job.has("gpus-per-task") && !job.has("ntasks-per-gpu") && !request.asks_for_gpus() &&
        !request.has_any("gres overlap oversubscribe nodelist relative exclude") && !request.has_unknown();
    if (shares && takes_gpus && whole.nodes == 1) {
      num_with_gpus += step.is_in_loop ? 2 : 1;
      if (first_with_gpus == nullptr) first_with_gpus = &step;
    }
    if (shares) continue;
    // A step for each node: nothing is shared.
    if (whole.nodes.value_or(1) > 1 && (request.nodes() == 1 || request.count("ntasks") == 1)) continue;
    if (!whole.ntasks) continue;
    count += step.is_in_loop ? 2 : 1;
    if (first == nullptr) first = &step;
  }
  if (num_with_gpus > 1) {
    finder.add(first_with_gpus->line(),
               "the steps in the background run one after the other: a step that does not ask for GPUs takes all GPUs "
               "of the job (\"Requested nodes are busy\")",
               "Give srun --gpus or --gres for each step, --gres=none for a step without GPUs, or --overlap.");
    return;
  }
  if (count < 2 || first == nullptr || assigns(subject.script, "SLURM_EXACT") ||
      assigns(subject.script, "SLURM_OVERLAP"))
    return;
  if (*whole.ntasks * whole.cpus_per_task.value_or(1) < 2 && !job.has("exclusive")) return;
  const bool is_old_alone = !subject.version && (job.has("cpus-per-task") || job.has("cpus-per-gpu"));
  finder.add_as(is_old_alone ? Severity::kNote : Severity::kWarning, first->line(),
                fmt::format("the steps in the background run one after the other{}: without --exact, each one takes "
                            "all CPUs of its node (\"Requested nodes are busy\")",
                            is_old_alone ? " before Slurm 23.11" : ""));
}

void check_pty(const Subject& subject, Finder& finder) {
  if (subject.is_command_line) return;
  for (const auto& step : steps_of(subject)) {
    if (!step.request.has("pty")) continue;
    const auto words = program_words(*step.command);
    if (words.size() == 1 && has_word("bash sh zsh", base_name(words[0].text))) {
      finder.add(step.line(), "a batch script has no terminal, so an interactive shell ends at once",
                 "Type srun --pty bash in a terminal instead.");
    }
  }
}

constexpr Rule kStepRules[] = {
    {"missing-srun", Severity::kWarning, "", "", "Several tasks, but nothing starts them",
     "The batch script runs once, on the first node. srun starts tasks.", "Write srun in front of the program.",
     "Slurm src/slurmctld/job_scheduler.c, launch_job: to batch_host alone, 22.05.8 to 26.05.3", check_missing_srun},
    {"launcher-on-one-node", Severity::kWarning, "", "", "torchrun or accelerate without srun on several nodes",
     "The launcher must run once on each node.", "Start it with srun --ntasks-per-node=1.",
     "torch/distributed/run.py: --nnodes is 1:1 unless given; Slurm src/slurmctld/job_scheduler.c, launch_job",
     check_launcher_once},
    {"launcher-per-task", Severity::kWarning, "", "", "srun starts a launcher several times on a node",
     "Each launcher starts workers of its own.", "One task for each node, or no launcher.",
     "torch/distributed/run.py, determine_local_world_size: --nproc-per-node, or 1", check_launcher_many},
    {"srun-mpirun", Severity::kWarning, "", "", "srun starts mpirun", "Each task starts all ranks.", "Use one of them.",
     "openpmix/prrte src/mca/ras/slurm/ras_slurm_module.c: all of SLURM_NODELIST and SLURM_TASKS_PER_NODE",
     check_srun_mpirun},
    {"srun-without-program", Severity::kError, "", "", "srun without a program",
     "srun says: No command given to execute.", "Add the program.", "Slurm src/srun, opt.c, 22.05.8 to 26.05.3",
     check_srun_script_options},
    {"step-over-job", Severity::kError, "", "", "A step that is larger than its job", "srun refuses it.",
     "Let the step ask for what the job has.", "srun 22.05.8 (tests/slurm/check_steps_test.cpp)", check_step_size},
    {"step-elsewhere", Severity::kError, "", "", "A step on nodes or GPUs that its job does not have",
     "srun refuses it.", "Let the step ask for what the job has.", "srun 22.05.8 (tests/slurm/check_test.cpp)",
     check_step_nodes},
    {"step-cpus-per-task", Severity::kWarning, "", "23.02", "srun does not take over --cpus-per-task",
     "In 22.05 and 23.02 srun reads SRUN_CPUS_PER_TASK alone; 23.11 brought SLURM_CPUS_PER_TASK back.",
     "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK, or srun --cpus-per-task=$SLURM_CPUS_PER_TASK.",
     "Slurm CHANGELOG 22.05.0rc1: Make it so srun no longer inherits SLURM_CPUS_PER_TASK; 23.11.0rc1: Replace "
     "SRUN_CPUS_PER_TASK",
     check_step_cpus},
    {"background-without-wait", Severity::kWarning, "", "", "Work in the background without `wait`",
     "The job ends with the script, and everything of it is killed.", "Write `wait` at the end.",
     "Slurm src/slurmctld/proc_req.c, _slurm_rpc_complete_batch_script; sbatch 22.05.8 (tests/slurm/check_test.cpp)",
     check_no_wait},
    {"steps-in-turn", Severity::kWarning, "", "", "Steps in the background that exclude each other",
     "A step takes all CPUs of its nodes unless --exact is given, or --cpus-per-task implies it, since 23.11 that of "
     "the job too.",
     "Give srun --exact, with --ntasks, --cpus-per-task, --mem and --gpus for each step.",
     "Slurm src/srun/libsrun/launch.c 22.05.8, src/srun/launch.c 23.02 to 26.05.3: SSF_WHOLE; "
     "src/slurmctld/step_mgr.c, src/stepmgr/stepmgr.c, _pick_step_nodes; srun 22.05.8 "
     "(tests/slurm/check_steps_test.cpp)",
     check_serial_steps},
    {"pty-in-batch", Severity::kWarning, "", "", "An interactive shell in a batch script", "There is no terminal.",
     "Use srun --pty in a terminal.",
     "Slurm src/srun/srun.c 22.05.8, src/srun/srun_job.c 26.05.3: Not using a pseudo-terminal, disregarding --pty",
     check_pty},
};

}  // namespace

std::span<const Rule> step_rules() { return kStepRules; }

}  // namespace yoke::slurm::check
