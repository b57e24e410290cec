// Rules about GPUs: who sees which, and what that does to communication between them.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"
#include "yoke/slurm/words/values.h"

namespace yoke::slurm::check {
namespace {

/// Whether a step of several tasks on a node gives each task GPUs of its own that the other tasks cannot reach.
/// Returns the option that does so; empty if none does.
std::string isolating_option(const Step& step, const Request& job) {
  const auto bind = step.request.has("gpu-bind") ? step.request.value("gpu-bind") : job.value("gpu-bind");
  const auto flags = job.value("gres-flags") + "," + step.request.value("gres-flags");
  if (bind.find("none") != bind.npos || flags.find("allow-task-sharing") != flags.npos) return "";
  for (const auto* option : {"gpus-per-task", "ntasks-per-gpu"}) {
    if (step.request.has(option) || job.has(option)) return std::string("--") + option;
  }
  return contains_any(bind, {"single", "map_gpu", "mask_gpu", "per_task", "closest"}) ? "--gpu-bind=" + bind : "";
}

bool looks_like_training(const std::vector<OptionWord>& words) {
  return std::ranges::any_of(words, [](const OptionWord& word) {
    const auto base = base_name(word.text);
    return base.starts_with("python") || base.ends_with(".py") ||
           has_word("torchrun accelerate deepspeed yoke apptainer singularity", base);
  });
}

void check_isolated(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  for (const auto& step : steps_of(subject)) {
    const auto tasks = step.layout.ntasks_per_node;
    const bool has_several = tasks ? *tasks > 1 : step.layout.ntasks.value_or(1) > step.layout.nodes.value_or(1);
    const auto option = isolating_option(step, job);
    if (!has_several || option.empty() || step.is_background) continue;
    if (step.layout.gpus_per_node == 1) continue;  // the tasks share it
    const auto line = step.line();
    bool is_training = looks_like_training(program_words(*step.command));
    for (const auto* word : {"NCCL_", "RCCL_", "MPICH_GPU_SUPPORT", "MASTER_ADDR"}) {
      is_training |= subject.script.text.find(word) != std::string::npos;
    }
    const auto severity = is_training ? Severity::kWarning : Severity::kNote;
    finder.add_as(severity, line,
                  fmt::format("{} gives each task a GPU that the other tasks of the node cannot reach, by a control "
                              "group for each task where the site constrains devices (ConstrainDevices): NCCL and RCCL "
                              "then lose direct copies between GPUs, or fail (cuIpcOpenMemHandle)",
                              option));
  }
}

void check_sharing_flag(const Subject& subject, Finder& finder) {
  if (subject.program != kSbatch) return;
  for (const auto& job : subject.script.components) {
    if (job.value("gres-flags").find("allow-task-sharing") == std::string::npos) continue;
    finder.add(job.line_of("gres-flags"),
               "--gres-flags=allow-task-sharing is an option of srun alone; sbatch refuses it", "Give it to srun.");
  }
}

void check_sharing_old(const Subject& subject, Finder& finder) {
  const auto judge = [&](const Request& request) {
    if (request.value("gres-flags").find("allow-task-sharing") == std::string::npos) return;
    if (!subject.version || *subject.version >= Version{23, 11, 4}) return;
    finder.add(
        request.line_of("gres-flags"),
        fmt::format("Slurm {} does not know allow-task-sharing, which came with 23.11.4", to_text(*subject.version)));
  };
  if (subject.program == kSrun) judge(subject.script.job());
  for (const auto& step : steps_of(subject)) judge(step.request);
}

void check_sharing_indices(const Subject& subject, Finder& finder) {
  for (const auto& step : steps_of(subject)) {
    if (step.request.value("gres-flags").find("allow-task-sharing") == std::string::npos) continue;
    finder.add(step.request.line_of("gres-flags"),
               "before Slurm 24.05.2, allow-task-sharing numbers GPUs wrongly if a job has some GPUs of a node only");
  }
}

/// Whether tasks of a node that were given GPUs by --cpus-per-gpu reach each other, a question of users of LUMI.
void check_cpus_per_gpu_reach(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  for (const auto& step : steps_of(subject)) {
    const auto tasks = step.layout.ntasks_per_node;
    if ((!job.has("cpus-per-gpu") && !step.request.has("cpus-per-gpu")) || !tasks || *tasks < 2) continue;
    if (!job.asks_for_gpus() && !step.request.asks_for_gpus()) continue;
    const auto option = isolating_option(step, job);
    finder.add(
        step.line(),
        option.empty()
            ? "--cpus-per-gpu divides CPUs alone: the tasks of a node share one control group with all GPUs of the "
              "step, and reach each other's. --gpus-per-task, --ntasks-per-gpu and --gpu-bind would divide them"
            : fmt::format("it is {} and not --cpus-per-gpu that puts each task into a control group with its own GPU, "
                          "where the site constrains devices",
                          option));
    return;
  }
}

void check_cpus_per_gpu_steps(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  if (!job.has("cpus-per-gpu")) return;
  for (const auto& step : steps_of(subject)) {
    if (step.request.has("cpus-per-task") || step.request.has("cpus-per-gpu")) continue;
    const auto line = step.line();
    if (subject.version && *subject.version >= Version{23, 11, 0}) {
      finder.add_as(Severity::kNote, line, "steps inherit --cpus-per-gpu since Slurm 23.11, which implies --exact");
    } else {
      finder.add(line,
                 "steps ignore --cpus-per-gpu before Slurm 23.11, so the tasks have one CPU each; since then it "
                 "implies --exact");
    }
    return;
  }
}

void check_cpus_per_gpu_hang(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    if (!job.has("cpus-per-gpu")) continue;
    finder.add_as(Severity::kNote, job.line_of("cpus-per-gpu"),
                  "jobs with --cpus-per-gpu may hang in the queue before Slurm 24.11.1");
  }
}

void check_gpu_bind(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    const auto bind = request.value("gpu-bind");
    if (bind.empty() || bind.find('$') != bind.npos || is_gpu_bind_value(bind)) return;
    const auto word = bind.substr(bind.starts_with("verbose,") ? 8 : 0);
    if (word.find_first_of("cCnN") == 0) {  // before 23.02, one letter of closest or none is enough
      if (subject.version && *subject.version < Version{23, 2, 0}) return;
      finder.add_as(subject.version ? Severity::kError : Severity::kWarning, request.line_of("gpu-bind"),
                    fmt::format("--gpu-bind={} is refused since Slurm 23.02; before, it is taken for {}", bind,
                                word.find_first_of("cC") == 0 ? "closest" : "none"),
                    "It takes none, closest, single:N, map_gpu:LIST, mask_gpu:LIST or per_task:N.");
      return;
    }
    finder.add(request.line_of("gpu-bind"), fmt::format("--gpu-bind={} is refused: Invalid --gpu-bind argument", bind),
               "It takes none, closest, single:N, map_gpu:LIST, mask_gpu:LIST or per_task:N.");
  });
}

void check_gpu_map(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  auto steps = steps_of(subject);
  if (subject.is_command_line && subject.program == kSrun && !subject.script.commands.empty()) {
    steps.push_back({&subject.script.commands.front(), job, layout_of(job), false, false});
    if (!steps.back().layout.gpus_per_node) steps.back().layout.gpus_per_node = job.gpus("gpus");
  }
  for (const auto& step : steps) {
    const auto bind = step.request.has("gpu-bind") ? step.request.value("gpu-bind") : job.value("gpu-bind");
    const auto at = bind.find("map_gpu:");
    const auto tasks = step.layout.ntasks_per_node;
    if (at == bind.npos) continue;
    const auto list = bind.substr(at + 8);
    if (list.find('*') != list.npos) continue;
    const auto entries = split(list, ',');
    const auto line = step.request.has("gpu-bind") ? step.request.line_of("gpu-bind") : job.line_of("gpu-bind");
    if (tasks && static_cast<int64_t>(entries.size()) < *tasks) {
      finder.add(
          line,
          fmt::format(
              "map_gpu lists {}, but a node has {} tasks; Slurm begins again with the first one, so tasks share GPUs",
              counted(entries.size(), "GPU"), *tasks));
    }
    for (const auto entry : entries) {
      const auto gpu = parse_count(entry);
      if (!gpu || !step.layout.gpus_per_node || *gpu < *step.layout.gpus_per_node) continue;
      finder.add(line,
                 fmt::format("map_gpu names GPU {}, but a task's node has {} of the job, numbered from 0 where the "
                             "site constrains devices (ConstrainDevices), and otherwise as the node numbers them",
                             *gpu, counted(*step.layout.gpus_per_node, "GPU")));
      break;
    }
  }
}

void check_visible(const Subject& subject, Finder& finder) {
  const auto layout = layout_of(subject.script.job());
  if (!layout.gpus_per_node || subject.script.is_het() || gets_whole_nodes(subject, subject.script.job())) return;
  for (const std::string_view name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) {
    for (const auto& assignment : assignments_of(subject.script)) {
      const auto entries = split(assignment.value.text, ',');
      const auto is_number = [](std::string_view entry) { return entry == "0" || parse_count(entry); };
      if (assignment.name != name || !std::ranges::all_of(entries, is_number)) continue;
      if (static_cast<int64_t>(entries.size()) > *layout.gpus_per_node) {
        finder.add(
            assignment.line,
            fmt::format("{} names {} GPUs, but the job has {} on a node; Slurm sets {} by itself", name, entries.size(),
                        *layout.gpus_per_node, name == "HIP_VISIBLE_DEVICES" ? "ROCR_VISIBLE_DEVICES" : name));
      } else if (name != "HIP_VISIBLE_DEVICES") {  // this one counts what Slurm's variable leaves
        finder.add_as(
            Severity::kNote, assignment.line,
            fmt::format(
                "{} replaces what Slurm sets; where GPUs are not confined by cgroups, this may be another user's GPU",
                name));
      }
    }
  }
}

/// All values that a script gives to a variable: in its own shell, in words of bash -c, and in here-documents.
std::vector<std::pair<std::string, int64_t>> all_values(const Script& script, const std::string& name) {
  std::vector<std::pair<std::string, int64_t>> values;
  for (size_t i = 0; i < script.lines.size(); ++i) {
    const auto& line = script.lines[i];
    const auto begin = line.find_first_not_of(" \t");
    if (begin == line.npos || line[begin] == '#') continue;
    for (auto at = line.find(name + "="); at != line.npos; at = line.find(name + "=", at + 1)) {
      if (at > 0 && (std::isalnum(static_cast<unsigned char>(line[at - 1])) != 0 || line[at - 1] == '_' ||
                     line[at - 1] == '$' || line[at - 1] == '{')) {
        continue;
      }
      const auto from = at + name.size() + 1;
      auto value = line.substr(from, line.find_first_of(" \t;&|", from) - from);
      std::erase_if(value, [](char c) { return c == '"' || c == '\'' || c == '\\' || c == '{' || c == '}'; });
      values.emplace_back(value, static_cast<int64_t>(i) + 1);
    }
  }
  return values;
}

void check_rocr_hip(const Subject& subject, Finder& finder) {
  for (const auto& [rocr, rocr_line] : all_values(subject.script, "ROCR_VISIBLE_DEVICES")) {
    for (const auto* other : {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}) {
      for (const auto& [value, line] : all_values(subject.script, other)) {
        if (rocr.empty() || value.empty() || value == "0") continue;
        const bool is_single = rocr.find(',') == rocr.npos;
        // HIP counts the devices that ROCR leaves: 0 to N-1.
        if (!is_single && value != rocr && value.find('$') != value.npos) continue;
        if (!is_single && (value.starts_with("0") || value == "$ROCR_VISIBLE_DEVICES")) continue;
        finder.add(std::max(line, rocr_line),
                   fmt::format("ROCR_VISIBLE_DEVICES={} (line {}) and {}={} (line {}) filter one after the other: HIP "
                               "counts the devices that ROCR leaves from 0, so tasks may see no GPU",
                               rocr, rocr_line, other, value, line));
        return;
      }
    }
  }
}

/// Whether one command of the script alone uses GPUs: a launcher in the foreground, once.
bool has_only_one_launcher(const Script& script) {
  const auto& commands = script.commands;
  const auto num_works = std::ranges::count_if(commands, is_work);
  const auto is_hidden = [](const Command& command) {
    return is_work(command) &&
           (command.shell->is_background || command.shell->is_in_loop || command.shell->is_in_function);
  };
  return num_works == 1 && std::ranges::none_of(commands, is_hidden) &&
         script.text.find("_VISIBLE_DEVICES") == std::string::npos;
}

void check_too_few_gpus(const Subject& subject, Finder& finder) {
  if (subject.script.is_het() || subject.is_command_line) return;
  const bool is_only_launcher = has_only_one_launcher(subject.script);
  const auto judge = [&](const std::vector<OptionWord>& words, const Layout& layout, bool is_step) {
    const auto launcher = launcher_of(words);
    if (launcher.empty() || launcher == "yoke run" || !layout.gpus_per_node || *layout.gpus_per_node == 0) return;
    const auto* option = launcher == "deepspeed"           ? "num-gpus"
                         : launcher == "accelerate launch" ? "num-processes"
                                                           : "nproc-per-node";
    const auto given = program_option(words, option);
    if (!given || !given->is_known() || (launcher == "accelerate launch" && layout.nodes != 1)) return;
    const auto count = parse_count(given->text);
    if (!count) return;
    const bool has_all_gpus = !is_step && gets_whole_nodes(subject, subject.script.job());
    if (*count > *layout.gpus_per_node) {
      if (has_all_gpus) return;
      finder.add(given->line,
                 fmt::format("{} starts {} processes on a node, but the job has {} there", launcher, *count,
                             counted(*layout.gpus_per_node, "GPU")),
                 fmt::format("Ask for {} GPUs on a node, or start {} processes.", *count, *layout.gpus_per_node));
    } else if (*count < *layout.gpus_per_node && (!is_step || layout.ntasks_per_node.value_or(1) == 1)) {
      // Several launchers may share the GPUs, and whole nodes have more than is needed.
      finder.add_as(is_only_launcher && !has_all_gpus ? Severity::kWarning : Severity::kNote, given->line,
                    fmt::format("{} starts {} process{} on a node with {} GPUs of the job; the others are idle",
                                launcher, *count, *count == 1 ? "" : "es", *layout.gpus_per_node));
    }
  };
  const auto job = layout_of(subject.script.job());
  for (const auto& step : steps_of(subject)) judge(program_words(*step.command), step.layout, true);
  for (const auto& command : subject.script.commands) {
    if (command.name != "srun") judge(command.words, job, false);
  }
}

/// CPUs that a job gets by default: one for each task, whatever its GPUs need.
void check_one_cpu(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  if (subject.is_command_line || subject.script.is_het() || !job.asks_for_gpus() || job.has_unknown()) return;
  if (job.has_any("cpus-per-task cpus-per-gpu exclusive mincpus tres-per-task core-spec cores-per-socket "
                  "extra-node-info hint threads-per-core")) {
    return;
  }
  const auto* partition = partition_of(subject, job).partition;
  if (partition != nullptr && (partition->is_whole_node || partition->has_default_cpus)) return;
  const auto layout = layout_of(job);
  const auto tasks = layout.ntasks_per_node, gpus = layout.gpus_per_node;
  if (!tasks || !gpus || *gpus == 0 || *tasks > *gpus) return;
  bool is_training = false;
  for (const auto& command : subject.script.commands) {
    const Request own(command.options);
    if (command.name == "srun" && own.has_any("cpus-per-task cpus-per-gpu cpu-bind")) return;
    is_training |= looks_like_training(program_words(command));
  }
  if (!is_training || subject.script.directives.empty()) return;
  const auto line =
      std::max(subject.script.directives.front().line, job.line_of("gres gpus gpus-per-node gpus-per-task"));
  finder.add_as(
      *tasks > 1 ? Severity::kWarning : Severity::kNote, line,
      fmt::format("the job asks for {} on a node and gets {} there, for all threads and loaders, unless its partition "
                  "gives whole nodes or CPUs for each GPU",
                  counted(*gpus, "GPU"), *tasks == 1 ? "one CPU or core" : fmt::format("{} CPUs or cores", *tasks)));
}

/// A use of a variable as a number, where its text has the type of the GPUs too.
void check_typed_variable(const Subject& subject, Finder& finder) {
  const auto& script = subject.script;
  if (subject.is_command_line || script.is_het()) return;
  for (const auto& [variable, option] : {std::pair{"SLURM_GPUS_PER_NODE", "gpus-per-node"},
                                         {"SLURM_GPUS", "gpus"},
                                         {"SLURM_GPUS_PER_TASK", "gpus-per-task"}}) {
    const auto value = script.job().value(option);
    if (value.empty() || parse_count(value) || !parse_gpus(value) || assigns(script, variable)) continue;
    // slurm-variable-not-set says that it is empty.
    if (std::string_view(variable) == "SLURM_GPUS_PER_TASK" && subject.version &&
        *subject.version >= kNoGpusPerTaskVariable) {
      continue;
    }
    for (const auto& use : script.shell.uses) {
      if (use.name != variable || use.has_default || use.is_cut) continue;
      if (use.line < 1 || use.line > std::ssize(script.lines)) continue;
      const auto& text = script.lines[static_cast<size_t>(use.line - 1)];
      if (contains_any(text, {"echo", "printf", "<<<", "[["})) continue;
      finder.add(use.line,
                 fmt::format("${} is \"{}\", as it is written in --{}, and no number", variable, value, option),
                 fmt::format("Write $SLURM_GPUS_ON_NODE, or ${{{}##*:}}.", variable));
      break;
    }
  }
}

constexpr Rule kGpuRules[] = {
    {"one-cpu-for-gpus", Severity::kWarning, "", "", "GPUs without a number of CPUs",
     "Slurm gives one CPU for each task; loaders and threads of a training need more.",
     "Add #SBATCH --cpus-per-task=N, and give srun the same.",
     "Slurm src/slurmctld/job_mgr.c: min_cpus is the number of tasks times --cpus-per-task; DefCpuPerGPU: "
     "src/plugins/select, gres_select_util_job_set_defs; 22.05.8 to 26.05.3",
     check_one_cpu},
    {"gpu-variable-with-type", Severity::kWarning, "", "", "A variable with the type of GPUs is used as a number",
     "sbatch sets it to the text of the option, such as a100:4.", "Write $SLURM_GPUS_ON_NODE.",
     "Slurm src/common/env.c, set_env_from_opts; tried with 22.05.8", check_typed_variable},
    {"gpus-per-task-isolates", Severity::kWarning, "", "", "Tasks of a node cannot reach each other's GPUs",
     "--gpus-per-task, --ntasks-per-gpu and --gpu-bind confine each task to its own GPU, so peer-to-peer copies are "
     "lost.",
     "Ask for --gpus-per-node and let each task choose its GPU by SLURM_LOCALID; or give srun --gpu-bind=none (before "
     "23.11 it also removes CUDA_VISIBLE_DEVICES), or --gres-flags=allow-task-sharing (since 23.11.4).",
     "E3SM #4834; NVIDIA/nccl #1066; open-mpi/ompi #11949; Slurm src/plugins/task/cgroup/task_cgroup_devices.c, "
     "task_cgroup_devices_constrain; CHANGELOG 23.11.4: Add --gres-flags=allow-task-sharing",
     check_isolated},
    {"task-sharing-in-sbatch", Severity::kError, "", "", "--gres-flags=allow-task-sharing for sbatch",
     "It is an option of steps.", "Give it to srun.",
     "Slurm src/common/slurm_opt.c: --gres-flags=allow-task-sharing is only used with srun", check_sharing_flag},
    {"task-sharing-too-old", Severity::kError, "", "23.11.3", "--gres-flags=allow-task-sharing before 23.11.4",
     "srun says: Invalid --gres-flags specification.", "Use --gpu-bind=none.",
     "Slurm CHANGELOG 23.11.4: Add --gres-flags=allow-task-sharing", check_sharing_old},
    {"task-sharing-indices", Severity::kWarning, "23.11", "24.05.1",
     "--gres-flags=allow-task-sharing numbers GPUs wrongly",
     "With some GPUs of a node, the indices in the variables are wrong.", "Ask for whole nodes.",
     "Slurm CHANGELOG 24.05.2: Fix GRES environment variable indices being incorrect", check_sharing_indices},
    {"cpus-per-gpu-in-steps", Severity::kWarning, "", "", "Steps treat --cpus-per-gpu differently",
     "The tasks of srun get one CPU each.", "Give --cpus-per-task, and to srun too.",
     "Slurm CHANGELOG 23.11.0rc1: Fix --cpus-per-gpu for step allocations, which was previously ignored for job steps",
     check_cpus_per_gpu_steps},
    {"cpus-per-gpu-reach", Severity::kNote, "", "", "Whether --cpus-per-gpu keeps GPUs from reaching each other",
     "slurmstepd makes a control group of devices for a task only if the step binds GPUs to tasks: --gpu-bind, "
     "--tres-bind, or what --gpus-per-task (since 21.08) and --ntasks-per-gpu (since 20.11) imply. --cpus-per-gpu "
     "binds none. Before 25.11, a step with one task on a node is not bound either.",
     "Give srun --gpu-bind=none, or --gres-flags=allow-task-sharing (since 23.11.4), to share the GPUs.",
     "Slurm src/plugins/task/cgroup/task_cgroup_devices.c, task_cgroup_devices_constrain (called if cgroup.conf has "
     "ConstrainDevices=yes); src/srun/libsrun/launch.c 22.05.8, src/srun/launch.c 24.05.4: Implicit GPU binding; "
     "src/slurmd/slurmstepd/mgr.c 24.05.4; CHANGELOG 25.11: Allow tres-bind on steps with only one task",
     check_cpus_per_gpu_reach},
    {"cpus-per-gpu-hangs", Severity::kNote, "", "24.11.0", "Jobs with --cpus-per-gpu may hang in the queue",
     "A defect of the scheduler.", "Give --cpus-per-task.",
     "Slurm CHANGELOG 24.11.1: Fix issue where jobs requesting cpus-per-gpu hang in queue", check_cpus_per_gpu_hang},
    {"bad-gpu-bind", Severity::kError, "", "", "--gpu-bind with a word it does not know", "The program refuses it.",
     "It takes none, closest, single:N, map_gpu:LIST, mask_gpu:LIST or per_task:N.",
     "Slurm src/common/tres_bind.c, 22.05.8 to 26.05.3; sbatch 22.05.8", check_gpu_bind},
    {"gpu-map-mismatch", Severity::kWarning, "", "", "--gpu-bind=map_gpu does not fit tasks or GPUs",
     "GPUs are numbered from 0 within the job if the site constrains devices. A list that is too short begins again.",
     "List one GPU for each task of a node.",
     "Slurm src/common/gres.c 22.05.8, src/interfaces/gres.c 23.02.8 to 26.05.3, _get_usable_gres_map_or_mask and "
     "gres_use_local_device_index",
     check_gpu_map},
    {"visible-devices-replaced", Severity::kWarning, "", "", "A variable names other GPUs than Slurm gave",
     "Slurm sets CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES for the job's GPUs.", "Delete the line.",
     "Slurm src/plugins/gres/common/gres_common.c, gres_common_gpu_set_env, 22.05.8 to 26.05.3", check_visible},
    {"rocr-with-hip", Severity::kWarning, "", "", "ROCR_VISIBLE_DEVICES with HIP_VISIBLE_DEVICES",
     "The second variable filters what the first one leaves, and counts it from 0.",
     "Set one of them; on LUMI, ROCR_VISIBLE_DEVICES.",
     "ROCm: ROCR-Runtime amd_filter_device.h, RvdFilter; clr rocclr/device/rocm/rocdevice.cpp, which applies "
     "HIP_VISIBLE_DEVICES, or else CUDA_VISIBLE_DEVICES, to the agents of ROCR",
     check_rocr_hip},
    {"workers-and-gpus", Severity::kWarning, "", "", "A launcher starts more processes than the node has GPUs",
     "Two processes would use one GPU, or fail.", "Let both numbers be equal.",
     "torch/distributed/run.py, determine_local_world_size; accelerate/commands/launch.py, --num_processes; "
     "deepspeed/launcher/runner.py, --num_gpus",
     check_too_few_gpus},
};

}  // namespace

std::span<const Rule> gpu_rules() { return kGpuRules; }

}  // namespace yoke::slurm::check
