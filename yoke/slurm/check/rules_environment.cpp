// Rules about variables: what Slurm does not set, what every rank would get alike, threads and workers.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "yoke/base/spelling.h"
#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

/// Variables of Slurm in a batch script that depend on an option.
struct Conditional {
  std::string_view variable;
  std::string_view options;  ///< One of them sets it.
};
constexpr std::string_view kTaskOptions =
    "ntasks ntasks-per-node ntasks-per-gpu gpus-per-task extra-node-info sockets-per-node cores-per-socket "
    "threads-per-core hint tres-per-task distribution";
constexpr Conditional kConditional[] = {
    {"SLURM_CPUS_PER_TASK", "cpus-per-task tres-per-task"},
    {"SLURM_NTASKS", kTaskOptions},
    {"SLURM_NPROCS", kTaskOptions},
    {"SLURM_NTASKS_PER_NODE", "ntasks-per-node"},
    {"SLURM_NTASKS_PER_CORE", "ntasks-per-core hint"},
    {"SLURM_NTASKS_PER_SOCKET", "ntasks-per-socket"},
    {"SLURM_NTASKS_PER_GPU", "ntasks-per-gpu"},
    {"SLURM_CPUS_PER_GPU", "cpus-per-gpu"},
    {"SLURM_GPUS", "gpus"},
    {"SLURM_GPUS_PER_NODE", "gpus-per-node"},
    {"SLURM_GPUS_PER_TASK", "gpus-per-task"},
    {"SLURM_GPUS_PER_SOCKET", "gpus-per-socket"},
    {"SLURM_MEM_PER_GPU", "mem-per-gpu"},
    {"SLURM_ARRAY_TASK_ID", "array"},
    {"SLURM_ARRAY_JOB_ID", "array"},
    {"SLURM_ARRAY_TASK_COUNT", "array"},
    {"SLURM_THREADS_PER_CORE", "threads-per-core hint extra-node-info"},
};

/// Other names that Slurm sets in jobs and their steps, or reads there: what src/common/env.c, src/sbatch, src/srun,
/// src/slurmd and src/plugins/gres name, 22.05.8 to 26.05.3, and some of sites.
const std::set<std::string, std::less<>>& slurm_names() {
  constexpr std::string_view kWithoutPrefix =
      "ARRAY_TASK_MAX ARRAY_TASK_MIN ARRAY_TASK_STEP CLUSTER_NAME CONF CPUS_ON_NODE CPU_BIND DIST_PLANESIZE "
      "DISTRIBUTION EXPORT_ENV GPU_BIND GPU_FREQ GPUS_ON_NODE GTIDS HET_SIZE HINT JOB_ACCOUNT JOB_CPUS_PER_NODE "
      "JOB_DEPENDENCY JOB_END_TIME JOB_GID JOB_GPUS JOB_GROUP JOB_ID JOBID JOB_LICENSES JOB_NAME JOB_NODELIST "
      "JOB_NUM_NODES JOB_PARTITION JOB_QOS JOB_RESERVATION JOB_RESTART_COUNT JOB_SCRIPT JOB_START_TIME JOB_UID "
      "JOB_USER JOB_EXTRA JOB_COMMENT JOB_CONSTRAINTS LAUNCH_NODE_IPADDR LOCALID MEM_PER_NODE NNODES NODE_ALIASES "
      "NODEFILE NODEID NODELIST OVERCOMMIT PRIO_PROCESS PROCID PROFILE RESTART_COUNT RESV_PORTS SHARDS_ON_NODE SPANK "
      "STEP_GPUS STEP_ID STEPID STEP_NODELIST STEP_NUM_NODES STEP_NUM_TASKS STEP_TASKS_PER_NODE SUBMIT_DIR SUBMIT_HOST "
      "TASK_PID TASKS_PER_NODE TMPDIR TOPOLOGY_ADDR TOPOLOGY_ADDR_PATTERN TRES_PER_TASK UMASK WCKEY WORKING_CLUSTER "
      "CLUSTERS MPI_TYPE EXACT OVERLAP EXCLUSIVE CPU_BIND_LIST CPU_BIND_TYPE CPU_BIND_VERBOSE MEM_BIND NETWORK "
      "PARTITION ACCOUNT TIMELIMIT UNBUFFEREDIO WAIT KILL_BAD_EXIT LABELIO STDOUTMODE STDERRMODE JWT SCRATCH JOB_TMP "
      "JOB_SEGMENT_SIZE JOB_OVERSUBSCRIBE JOB_EXCLUSIVE OOM_KILL_STEP CONTAINER CONTAINER_ID DEBUG ROOT HOME "
      "SRUN_COMM_HOST SRUN_COMM_PORT STEP_LAUNCHER_PORT STEP_RESV_PORTS SPREAD_JOB USE_MIN_NODES HOSTFILE MEM_PER_CPU "
      "CPU_FREQ_REQ MEM_BIND_LIST MEM_BIND_TYPE MEM_BIND_PREFER MEM_BIND_SORT MEM_BIND_VERBOSE JOB_SLUID JOB_NICS "
      "STEP_NICS NTASKS_PER_TRES TRES_BIND OPEN_MODE ACCTG_FREQ ARBITRARY_NODELIST GET_USER_ENV CONTAINER_TYPE "
      "CONF_SERVER STEPMGR PTY_PORT PTY_WIN_COL PTY_WIN_ROW X11_SETUP_FAILED SRUN_TLS_CERT";
  static const auto kNames = [&] {
    std::set<std::string, std::less<>> names;
    for (const auto word : words_of(kWithoutPrefix)) names.insert("SLURM_" + std::string(word));
    return names;
  }();
  return kNames;
}

bool is_slurm_name(std::string_view name) {
  if (slurm_names().contains(name)) return true;
  if (std::ranges::find(kConditional, name, &Conditional::variable) != std::end(kConditional)) return true;
  if (name.find("_HET_GROUP_") != name.npos || name.find("_PACK_GROUP_") != name.npos) return true;
  return name.starts_with("SLURM_SPANK") || name.starts_with("SLURM_RLIMIT_") || name.starts_with("SLURM_HET_") ||
         name.starts_with("SLURM_PMI") || name == "SLURM_PACK_SIZE";
}

/// Whether the command line of sbatch probably gives options, because the script is a template or takes arguments.
bool is_open(const Subject& subject) {
  return subject.is_command_line || !subject.script.is_shell || subject.script.job().has_unknown() ||
         subject.script.is_het() || subject.script.directives.empty();
}

/// Whether a script takes `variable` for the sign that it has GPUs, which another option than this one asks for.
bool tests_for_gpus(const Script& script, std::string_view variable) {
  if ((variable != "SLURM_GPUS" && variable != "SLURM_GPUS_PER_NODE") || !script.job().asks_for_gpus()) return false;
  for (const auto* other : {"SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "VISIBLE_DEVICES"}) {
    if (script.text.find(other) != std::string::npos) return false;
  }
  const auto& uses = script.shell.uses;
  const auto is_other = [&](const VariableUse& use) {
    return use.name != variable && use.name.starts_with("SLURM_GPUS");
  };
  if (std::ranges::any_of(uses, is_other)) return false;
  return std::ranges::any_of(script.commands, [&](const Command& command) {
    if (command.name != "[" && command.name != "[[" && command.name != "test") return false;
    for (size_t i = 1; i + 1 < command.words.size(); ++i) {
      const auto& sign = command.words[i].text;
      if ((sign == "-z" || sign == "-n") && mentions_variable(command.words[i + 1], variable)) return true;
    }
    return false;
  });
}

void check_not_set(const Subject& subject, Finder& finder) {
  if (is_open(subject)) return;
  const auto& script = subject.script;
  for (const auto& one : kConditional) {
    if (assigns(script, one.variable)) continue;
    const auto options = words_of(one.options);
    const bool is_given = std::ranges::any_of(options, [&](auto option) { return script.job().has(option); });
    const auto use = std::ranges::find_if(
        script.shell.uses, [&](const VariableUse& u) { return u.name == one.variable && !u.has_default; });
    if (use == script.shell.uses.end()) continue;
    if (is_given && one.variable == "SLURM_GPUS_PER_TASK" &&
        (!subject.version || *subject.version >= kNoGpusPerTaskVariable)) {
      finder.add_as(subject.version ? Severity::kWarning : Severity::kNote, use->line,
                    "$SLURM_GPUS_PER_TASK is empty in a batch script since Slurm 23.11, which sets SLURM_TRES_PER_TASK",
                    "Write the number of --gpus-per-task here too.");
    }
    // --gres and --gpus do not set SLURM_GPUS_PER_NODE.
    if (is_given) continue;
    if (tests_for_gpus(script, one.variable)) {
      finder.add(
          use->line,
          fmt::format(
              "${} is empty, because --{} is not given: this test says that the job has no GPUs, but it asks for some",
              one.variable, options[0]),
          "Test $SLURM_GPUS_ON_NODE instead.");
      continue;
    }
    // Scripts that test it know that it may be unset.
    const bool is_tested =
        std::ranges::any_of(script.shell.uses,
                            [&](const VariableUse& u) { return u.name == one.variable && u.has_default; }) ||
        std::ranges::any_of(script.commands, [&](const Command& command) {
          return (command.name == "[" || command.name == "[[" || command.name == "test") &&
                 std::ranges::any_of(command.words,
                                     [&](const OptionWord& w) { return w.text.find(one.variable) != w.text.npos; });
        });
    if (is_tested) continue;
    const bool is_array = one.variable.starts_with("SLURM_ARRAY");
    const auto message = fmt::format("${} is empty, because --{} is not given{}", one.variable, options[0],
                                     is_array ? " here (it may be on the command line of sbatch)" : "");
    const auto fix = fmt::format("Add #SBATCH --{}=..., or write ${{{}:-1}}.", options[0], one.variable);
    // A line that only prints it does no harm.
    const bool is_printed = std::ranges::all_of(script.shell.uses, [&](const VariableUse& u) {
      return u.name != one.variable || std::ranges::any_of(script.commands, [&](const Command& command) {
               return (command.name == "echo" || command.name == "printf") && command.words.front().line == u.line;
             });
    });
    finder.add_as(is_array || is_printed ? Severity::kNote : Severity::kWarning, use->line, message, fix);
  }
}

void check_unknown_slurm(const Subject& subject, Finder& finder) {
  if (subject.is_command_line) return;
  std::set<std::string> told;
  for (const auto& use : subject.script.shell.uses) {
    if (!use.name.starts_with("SLURM_") || is_slurm_name(use.name) || assigns(subject.script, use.name)) continue;
    if (use.has_default || !told.insert(use.name).second) continue;
    std::string nearest;
    size_t distance = 4;
    const auto try_name = [&](const std::string& name) {
      if (name.size() > use.name.size() + distance || use.name.size() > name.size() + distance) return;
      const auto d = edit_distance(use.name, name);
      if (d < distance) distance = d, nearest = name;
    };
    for (const auto& name : slurm_names()) try_name(name);
    for (const auto& one : kConditional) try_name(std::string(one.variable));
    finder.add(use.line, nearest.empty() ? fmt::format("Slurm does not set ${}", use.name)
                                         : fmt::format("Slurm does not set ${}; did you mean ${}?", use.name, nearest));
  }
}

/// Names in small letters that environments and loops have.
constexpr std::string_view kKnown =
    "http_proxy https_proxy no_proxy ftp_proxy all_proxy i j k n x f line status module_cmd hostname user host project "
    "scratch work home group account";

/// Variables that bash sets itself.
constexpr std::string_view kOfShell =
    "COMP_CWORD COMP_LINE COMP_WORDS COMPREPLY COPROC DIRSTACK GROUPS HISTCMD MACHTYPE OSTYPE READLINE_LINE "
    "READLINE_MARK SRANDOM SHELLOPTS COLUMNS LINES READLINE_POINT";

/// Names that users, shells, modules and sites export, which no script needs to set.
constexpr std::string_view kExported =
    "HOME USER PATH PWD SHELL HOSTNAME TMPDIR LANG LOGNAME LD_LIBRARY_PATH PYTHONPATH CUDA_VISIBLE_DEVICES "
    "ROCR_VISIBLE_DEVICES SCRATCH WORK PROJECT OLDPWD IFS RANDOM EPOCHSECONDS EPOCHREALTIME MAPFILE SHLVL HOSTTYPE "
    "SECONDS LINENO UID CUDA_HOME ROCM_PATH CONDA_PREFIX VIRTUAL_ENV PSCRATCH CFS LOCAL_SCRATCH PPID EUID FUNCNAME "
    "PIPESTATUS REPLY OPTARG OPTIND CPATH LIBRARY_PATH MANPATH MODULEPATH TERM DISPLAY GROUP";

/// Whether --export of the job gives the variable a value, or names it.
bool is_exported_to(const Request& job, std::string_view name) {
  const auto value = job.value("export");
  const auto parts = split(value, ',');
  return std::ranges::any_of(parts, [&](std::string_view part) { return part.substr(0, part.find('=')) == name; });
}

void check_undefined(const Subject& subject, Finder& finder) {
  const auto& script = subject.script;
  if (subject.is_command_line || !script.is_shell || script.shell.has_source || script.job().has("export-file")) return;
  const bool is_strict = std::ranges::any_of(script.commands, [](const Command& command) {
    return command.name == "set" && std::ranges::any_of(command.words, [](const OptionWord& word) {
             return word.text == "nounset" || (word.text.size() > 1 && word.text[0] == '-' && word.text[1] != '-' &&
                                               word.text.find('u') != word.text.npos);
           });
  });
  const std::set<std::string> assigned(script.shell.assigned.begin(), script.shell.assigned.end());
  std::set<std::string> told, optional;
  for (const auto& use : script.shell.uses) {
    if (use.has_default) optional.insert(use.name);
  }
  for (const auto& use : script.shell.uses) {
    const auto& name = use.name;
    if (use.has_default || name.starts_with("SLURM") || name.starts_with("BASH") || assigned.contains(name) ||
        has_word(kKnown, name) || has_word(kOfShell, name) || is_exported_to(script.job(), name))
      continue;
    if (!told.insert(name).second) continue;
    if (optional.contains(name)) continue;
    std::string nearest;
    for (const auto& other : assigned) {
      if (told.size() * assigned.size() > 1'000'000) break;  // a script that a program wrote
      if (other.size() > 4 && name.size() > 4 && edit_distance(other, name) == 1 && other != name) nearest = other;
    }
    const bool differs_by_number = !nearest.empty() && nearest.size() == name.size() &&
                                   std::isdigit(static_cast<unsigned char>(nearest.back())) != 0;
    const bool is_lower =
        std::ranges::none_of(name, [](char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; });
    if (!nearest.empty() && !differs_by_number) {
      finder.add(use.line,
                 fmt::format("${} is not set in the script, but {} is: is that what is meant?", name, nearest));
    } else if (is_lower && name.size() > 1) {
      finder.add(use.line,
                 fmt::format("${} is not set in the script{}", name, is_strict ? ", and `set -u` ends it there" : ""));
    } else if (!is_lower) {
      if (has_word(kExported, name)) continue;
      // The site, a module or the user may export it.
      finder.add_as(Severity::kNote, use.line,
                    fmt::format("${} is not set in the script; it must be in the environment of sbatch{}", name,
                                is_strict ? ", or `set -u` ends the script there" : ""));
    }
  }
}

// ---- The same for all ranks

/// Whether srun starts the script itself, so that its tasks read it too.
bool starts_itself(const Script& script) {
  return std::ranges::any_of(script.commands, [&](const Command& command) {
    const auto words = command.name == "srun" ? program_words(command) : std::vector<OptionWord>{};
    return std::ranges::any_of(words, [&](const OptionWord& word) {
      if (word.is_known()) return !script.path.empty() && word.text == script.path;
      return word.text == "$0" || word.text == "${0}" || word.text.starts_with("$BASH_SOURCE") ||
             word.text.starts_with("${BASH_SOURCE");
    });
  });
}

bool is_rank_name(std::string_view name) {
  return has_word(
      "RANK LOCAL_RANK NODE_RANK GROUP_RANK MACHINE_RANK CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES "
      "JAX_PROCESS_ID",
      name);
}

/// ARGS="--node-rank=$SLURM_NODEID" and then srun torchrun $ARGS: the batch shell has replaced it by 0.
void find_rank_in_variable(const Subject& subject, const Step& step, Finder& finder) {
  const auto words = program_words(*step.command);
  for (const auto& command : subject.script.shell.commands) {
    if (command.is_in_function || command.is_in_substitution || command.subshell > 0) continue;
    for (const auto& assignment : command.assignments) {
      const auto is_used = [&](const OptionWord& word) { return mentions_variable(word, assignment.name); };
      if (is_rank_name(assignment.name) || std::ranges::none_of(words, is_used)) continue;
      for (const auto* variable : {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"}) {
        if (!mentions_variable(assignment.value, variable)) continue;
        if (std::string_view(variable) == "SLURM_NODEID" && step.layout.nodes == 1) continue;
        finder.add(assignment.line,
                   fmt::format("the batch shell replaces ${} in {} by 0, so all tasks of srun on line {} get 0",
                               variable, assignment.name, step.line()),
                   fmt::format("Let the task expand it: srun bash -c '... ${} ...' in single quotes.", variable));
      }
    }
  }
}

void check_rank_in_batch(const Subject& subject, Finder& finder) {
  if (subject.is_command_line || subject.script.is_het() || starts_itself(subject.script)) return;
  const auto layout = layout_of(subject.script.job());
  const bool has_one_task = layout.ntasks == 1;
  const bool has_one_node = layout.nodes == 1;
  for (const auto& command : subject.script.shell.commands) {
    if (command.is_in_function || command.is_in_substitution || command.subshell > 0) continue;
    for (const auto& assignment : command.assignments) {
      if (!is_rank_name(assignment.name) || has_one_task) continue;
      for (const auto* variable : {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"}) {
        if (!mentions_variable(assignment.value, variable)) continue;
        finder.add(assignment.line,
                   fmt::format("{}=${} is 0 for all ranks: the batch script runs once, and tasks inherit its value",
                               assignment.name, variable),
                   "Set it inside of the step: srun bash -c 'RANK=$SLURM_PROCID exec ...' in single quotes, or in a "
                   "script that srun starts.");
      }
    }
  }
  if (has_one_node && has_one_task) return;
  for (const auto& step : steps_of(subject)) {
    if (step.is_in_loop || step.layout.ntasks == 1) continue;
    find_rank_in_variable(subject, step, finder);
    for (const auto& word : program_words(*step.command)) {
      for (const auto* variable : {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"}) {
        if (!mentions_variable(word, variable) ||
            (std::string_view(variable) == "SLURM_NODEID" && step.layout.nodes == 1))
          continue;
        finder.add(
            word.line,
            fmt::format("the batch shell replaces ${} by 0 before srun starts, so all tasks get 0", variable),
            fmt::format(
                "Let the task expand it: srun bash -c '... ${} ...' in single quotes, or \\${} within double quotes.",
                variable, variable));
      }
    }
  }
}

void check_master_address(const Subject& subject, Finder& finder) {
  const auto nodes = layout_of(subject.script.job()).nodes;
  if (!nodes || *nodes < 2 || subject.is_command_line) return;
  for (const auto& command : subject.script.shell.commands) {
    if (command.is_in_condition) continue;  // perhaps for a single node
    for (const auto& assignment : command.assignments) {
      const auto& value = assignment.value.text;
      if (assignment.name != "MASTER_ADDR" || (value != "localhost" && value != "127.0.0.1" && value != "::1"))
        continue;
      finder.add(
          assignment.line,
          fmt::format("MASTER_ADDR={} is another host on each of the {} nodes, so ranks wait for each other for ever",
                      value, *nodes));
    }
  }
  const auto judge = [&](const std::vector<OptionWord>& words, int64_t num_nodes) {
    for (const auto* option : {"rdzv-endpoint", "master-addr", "main-process-ip"}) {
      const auto given = launcher_of(words).empty() ? std::nullopt : program_option(words, option);
      if (!given) continue;
      const auto host = given->text.substr(0, given->text.find(':'));
      if (host != "localhost" && host != "127.0.0.1") continue;
      finder.add(given->line, fmt::format("--{} {} is another host on each of the {} nodes, so they never meet", option,
                                          given->text, num_nodes));
    }
  };
  for (const auto& step : steps_of(subject)) {
    if (const auto num_nodes = step.layout.nodes; num_nodes && *num_nodes > 1)
      judge(program_words(*step.command), *num_nodes);
  }
  for (const auto& command : subject.script.commands) {
    const auto words = program_words(command);
    const auto asked = program_option(words, launcher_of(words) == "accelerate launch" ? "num-machines" : "nnodes");
    // A launcher of one node meets nobody elsewhere.
    if (command.name != "srun" && asked && asked->text != "1") judge(words, *nodes);
  }
}

// ---- Threads and workers

void check_threads(const Subject& subject, Finder& finder) {
  if (subject.is_command_line || subject.script.is_het()) return;
  const auto layout = layout_of(subject.script.job());
  const auto& job = subject.script.job();
  if (!layout.cpus_per_task) return;
  auto cpus = *layout.cpus_per_task;
  const bool has_tasks = std::ranges::any_of(
      subject.script.commands, [](const Command& c) { return c.name == "srun" || c.name.starts_with("mpi"); });
  if (!has_tasks) {  // the batch script has the CPUs of all tasks of its node
    if (!layout.ntasks_per_node || gets_whole_nodes(subject, job)) return;
    cpus *= *layout.ntasks_per_node;
  }
  for (const auto& assignment : assignments_of(subject.script)) {
    const auto threads = assignment.name == "OMP_NUM_THREADS" ? parse_count(assignment.value.text) : std::nullopt;
    if (!threads || *threads <= cpus || job.value("hint") == "multithread") continue;
    finder.add(assignment.line,
               fmt::format("OMP_NUM_THREADS={} is more than the {} of {}", *threads, counted(cpus, "CPU"),
                           has_tasks ? "a task" : "the job on a node"),
               "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK");
  }
}

void check_workers(const Subject& subject, Finder& finder) {
  if (subject.is_command_line || subject.script.is_het()) return;
  const auto judge = [&](const std::vector<OptionWord>& words, const Layout& layout) {
    const auto given = program_option(words, "num-workers");
    const auto other = given ? given : program_option(words, "workers");
    const auto workers = other && other->is_known() ? parse_count(other->text) : std::nullopt;
    if (!workers || !layout.cpus_per_task) return;
    const auto processes = program_option(words, "nproc-per-node");
    const auto ranks = launcher_of(words).empty() ? std::optional<int64_t>(1)
                       : processes ? (processes->is_known() ? parse_count(processes->text) : std::nullopt)
                                   : std::nullopt;
    if (*workers * ranks.value_or(1) <= *layout.cpus_per_task) return;
    finder.add(other->line,
               ranks.value_or(1) > 1
                   ? fmt::format("{} ranks with {} workers each are {} processes, but a task has {} CPUs", *ranks,
                                 *workers, *ranks * *workers, *layout.cpus_per_task)
                   : fmt::format("{} workers share the {} of a task", *workers, counted(*layout.cpus_per_task, "CPU")));
  };
  for (const auto& step : steps_of(subject)) judge(program_words(*step.command), step.layout);
  auto job = layout_of(subject.script.job());  // a program without srun has the CPUs of all tasks of its node
  if (!job.ntasks_per_node || gets_whole_nodes(subject, subject.script.job())) return;
  if (job.cpus_per_task) *job.cpus_per_task *= *job.ntasks_per_node;
  for (const auto& command : subject.script.commands) {
    if (command.name != "srun") judge(command.words, job);
  }
}

// ---- The environment of steps

void check_export(const Subject& subject, Finder& finder) {
  if (subject.is_command_line) return;
  const auto& job = subject.script.job();
  const auto* given = job.find("export");
  if (given == nullptr || !given->is_known || assigns(subject.script, "SLURM_EXPORT_ENV")) return;
  const auto value = upper_case(given->value);  // Slurm ignores the case of the words
  const auto parts = split(value, ',');
  if (std::ranges::find(parts, std::string_view("ALL")) != parts.end()) return;
  const auto steps = steps_of(subject);
  const bool all_export =
      !steps.empty() && std::ranges::all_of(steps, [](const Step& step) { return step.request.has("export"); });
  if (all_export || (value == "NIL" && steps.empty())) return;
  if (value.empty()) {
    finder.add(job.line_of("export"),
               "--export without a value drops all variables, PATH among them, so steps may not find their programs",
               "Write --export=ALL, or leave it out.");
  } else if (value == "NONE" || value == "NIL") {
    if (steps.empty()) return;
    finder.add(
        job.line_of("export"),
        fmt::format("srun inherits --export={}, so its tasks do not get variables and modules that the script sets",
                    given->value),
        "Write `unset SLURM_EXPORT_ENV` in the script, or srun --export=ALL.");
  } else {
    finder.add(
        job.line_of("export"),
        fmt::format(
            "--export={} without ALL drops all other variables of your environment, such as PATH settings and modules",
            given->value),
        fmt::format("Write --export=ALL,{}.", given->value));
  }
}

void check_debug(const Subject& subject, Finder& finder) {
  constexpr std::string_view kDebug =
      "CUDA_LAUNCH_BLOCKING NCCL_P2P_DISABLE NCCL_IB_DISABLE NCCL_SHM_DISABLE AMD_SERIALIZE_KERNEL HIP_LAUNCH_BLOCKING "
      "TORCH_DISTRIBUTED_DEBUG";
  for (const auto& assignment : assignments_of(subject.script)) {
    const auto& value = assignment.value.text;
    if (!has_word(kDebug, assignment.name) || value == "0" || value.empty() || value == "OFF" || value == "INFO")
      continue;
    finder.add(assignment.line,
               fmt::format("{}={} is for finding errors, and may make training slow", assignment.name, value));
  }
}

void check_tasks_per_node(const Subject& subject, Finder& finder) {
  const auto nodes = layout_of(subject.script.job()).nodes;
  if (subject.is_command_line || (nodes && *nodes < 2)) return;
  for (const auto& command : subject.script.commands) {
    const auto words = program_words(command);
    if (launcher_of(words).empty()) continue;
    const auto processes = program_option(words, "nproc-per-node");
    if (!processes || !mentions_variable(*processes, "SLURM_TASKS_PER_NODE") ||
        processes->text.find("%%") != std::string::npos)
      continue;
    finder.add(processes->line, "$SLURM_TASKS_PER_NODE is no number on several nodes; it looks like 4(x2)",
               "Use $SLURM_NTASKS_PER_NODE or $SLURM_GPUS_ON_NODE.");
  }
}

void check_conda(const Subject& subject, Finder& finder) {
  const auto& script = subject.script;
  if (subject.is_command_line || script.shell.has_source) return;
  for (const auto& command : script.commands) {
    if (command.name != "conda" || command.words.size() < 2 || command.words[1].text != "activate") continue;
    const bool is_ready =
        script.text.find("conda.sh") != std::string::npos || script.text.find("shell.bash hook") != std::string::npos ||
        script.text.find("conda init") != std::string::npos || script.text.find("module ") != std::string::npos ||
        script.text.find("ml ") != std::string::npos || script.lines[0].find(" -l") != std::string::npos ||
        script.lines[0].find("-i") != std::string::npos || script.lines[0].find("--login") != std::string::npos;
    if (!is_ready)
      finder.add(command.words[0].line, "`conda activate` fails in a batch script unless conda was set up in it");
    return;
  }
}

constexpr const char* kVariables =
    "Slurm src/sbatch/opt.c, set_envs; src/common/env.c, set_env_from_opts and env_array_for_batch_job, 22.05.8 to "
    "26.05.3; sbatch 22.05.8 (tests/slurm/check_test.cpp)";

constexpr Rule kEnvironmentRules[] = {
    {"slurm-variable-not-set", Severity::kWarning, "", "", "A variable of Slurm that this job does not get",
     "Slurm sets many variables only if their option is given.", "Give the option, or a default: ${NAME:-1}.",
     kVariables, check_not_set},
    {"unknown-slurm-variable", Severity::kWarning, "", "", "A variable that Slurm does not set",
     "It is empty, unless something else sets it.", "Use a variable of the list in `man sbatch`.", kVariables,
     check_unknown_slurm},
    {"undefined-variable", Severity::kWarning, "", "", "A variable that the script does not set",
     "It is empty, unless the environment of sbatch has it.", "Set it, or write ${NAME:?} to end with a message.",
     "POSIX.1-2017, Shell Command Language, 2.6.2", check_undefined},
    {"rank-in-batch-shell", Severity::kWarning, "", "", "A rank that is read in the batch shell",
     "The batch script is task 0; the tasks of srun inherit its value.",
     "Read SLURM_PROCID and SLURM_LOCALID within the step.", kVariables, check_rank_in_batch},
    {"master-addr-localhost", Severity::kWarning, "", "", "MASTER_ADDR is localhost on several nodes",
     "Each node would look for rank 0 on itself.",
     "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n1)",
     "torch/distributed/rendezvous.py, _env_rendezvous_handler: each rank connects to MASTER_ADDR",
     check_master_address},
    {"too-many-threads", Severity::kWarning, "", "", "More threads than CPUs", "Threads take turns on the task's CPUs.",
     "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK",
     "openmp.org, OpenMP API 5.2, OMP_NUM_THREADS: the number of threads of a parallel region", check_threads},
    {"too-many-workers", Severity::kWarning, "", "", "More workers than CPUs",
     "Workers that load data take turns on the task's CPUs, and slow the training down.",
     "Ask for more CPUs, or for fewer workers.",
     "torch/utils/data/dataloader.py, check_worker_number_rationality, which warns of the same", check_workers},
    {"export-without-all", Severity::kWarning, "", "", "--export without ALL",
     "Steps inherit it through SLURM_EXPORT_ENV.", "Write --export=ALL,NAME=value.",
     "Slurm src/sbatch/opt.c, _opt_verify: SLURM_EXPORT_ENV; src/common/env.c, env_merge_filter; 22.05.8 to 26.05.3",
     check_export},
    {"debug-variable", Severity::kNote, "", "", "A variable for finding errors", "It makes GPUs or communication slow.",
     "Delete it when the error is found.", "docs.nvidia.com/deeplearning/nccl, Environment Variables", check_debug},
    {"tasks-per-node-text", Severity::kWarning, "", "", "SLURM_TASKS_PER_NODE used as a number",
     "Its value is a list such as 4(x2).", "Use SLURM_NTASKS_PER_NODE.", kVariables, check_tasks_per_node},
    {"conda-activate", Severity::kNote, "", "", "conda activate without conda's setup",
     "The function comes from conda.sh, which interactive shells read alone.",
     "source \"$(conda info --base)/etc/profile.d/conda.sh\" first.",
     "conda/shell/etc/profile.d/conda.sh; conda/cli/main_mock_activate.py: Run 'conda init' before 'conda activate'",
     check_conda},
};

}  // namespace

std::span<const Rule> environment_rules() { return kEnvironmentRules; }

}  // namespace yoke::slurm::check
