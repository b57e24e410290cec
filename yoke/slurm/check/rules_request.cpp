// Rules about requests that contradict themselves: refused, or silently something else.
#include <fmt/format.h>

#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

/// Options that exclude each other, and the message, which names both.
struct Exclusion {
  std::string_view rule;
  const char *option, *other, *message;
  unsigned programs = kAll;
};
constexpr const char* kRefused = "--{} and --{} exclude each other, and the job is refused";
constexpr const char* kDropped = "since Slurm 25.11, --{} is ignored without a message if --{} is given too";
constexpr Exclusion kExclusions[] = {
    {"cpus-per-gpu-with-cpus-per-task", "cpus-per-gpu", "cpus-per-task", kRefused},
    {"ntasks-per-gpu-conflict", "ntasks-per-gpu", "ntasks-per-node", kRefused},
    {"ntasks-per-gpu-conflict", "ntasks-per-gpu", "gpus-per-task", kRefused},
    {"ntasks-per-gpu-conflict", "ntasks-per-gpu", "gpus-per-socket", kRefused},
    {"ntasks-per-gpu-conflict", "ntasks-per-gpu", "tres-per-task", kRefused},
    {"ntasks-per-gpu-pending", "ntasks-per-gpu", "cpus-per-task",
     "a job with --{} and --{} may stay pending for ever before Slurm 25.05.1"},
    {"core-and-thread-spec", "core-spec", "thread-spec", kRefused},
    {"quiet-and-verbose", "quiet", "verbose", "--{} and --{} together are refused"},
    {"requeue-contradiction", "requeue", "no-requeue", "--{} and --{} contradict each other; the last one counts"},
    {"hint-with-sockets", "hint", "cores-per-socket", kDropped},
    {"hint-with-sockets", "hint", "sockets-per-node", kDropped},
    {"overlap-with-exclusive", "overlap", "exclusive", "srun refuses --{} with --{}", kSrun},
};

void check_memory_options(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program program, bool /*is_step*/) {
    const int count = request.has("mem") + request.has("mem-per-cpu") + request.has("mem-per-gpu");
    if (count < 2) return;
    finder.add(request.line_of("mem mem-per-cpu mem-per-gpu"),
               fmt::format("{} refuses more than one of --mem, --mem-per-cpu and --mem-per-gpu", name(program)));
  });
}

void check_tasks_fit(const Subject& subject, Finder& finder) {
  if (subject.program == kSrun) return;
  for (const auto& job : subject.script.components) {
    const auto nodes = job.nodes(), ntasks = job.count("ntasks"), per_node = job.count("ntasks-per-node");
    if (!nodes || !ntasks || !per_node || *ntasks <= *nodes * *per_node) continue;
    finder.add(job.line_of("ntasks ntasks-per-node nodes"),
               fmt::format("{} tasks do not fit on {} with {} tasks on each; sbatch 22.05 says: Requested node "
                           "configuration is not available",
                           *ntasks, counted(*nodes, "node"), *per_node));
  }
}

void check_tasks_ignored(const Subject& subject, Finder& finder) {
  const auto judge = [&](const Request& request, const Layout& layout) {
    const auto nodes = layout.nodes, ntasks = request.count("ntasks"), per_node = request.count("ntasks-per-node");
    if (!nodes || !ntasks || !per_node || *ntasks <= *nodes * *per_node) return;
    finder.add(request.line_of("ntasks ntasks-per-node"),
               fmt::format("srun ignores --ntasks-per-node {} with {} tasks on {}, and only warns", *per_node, *ntasks,
                           counted(*nodes, "node")));
  };
  if (subject.program == kSrun) judge(subject.script.job(), {.nodes = subject.script.job().nodes()});
  for (const auto& step : steps_of(subject)) judge(step.request, step.layout);
  const auto& job = subject.script.job();
  const auto whole = layout_of(job);
  if (subject.script.text.find("unset SLURM") != std::string::npos || assigns(subject.script, "SLURM_NTASKS")) return;
  if (!whole.ntasks || (!job.has("ntasks") && !job.has("ntasks-per-node"))) return;
  for (const auto& step : steps_of(subject)) {
    const auto& request = step.request;
    const auto nodes = request.has("nodes") ? request.nodes() : whole.nodes;
    const auto per_node = request.count("ntasks-per-node");
    if (request.has("ntasks") || request.has_unknown() || !nodes || !per_node || *nodes * *per_node == *whole.ntasks) {
      continue;
    }
    const bool is_mended = request.has("nodes") && subject.version && *subject.version >= Version{23, 2, 5};
    if (is_mended) continue;
    finder.add_as(request.has("nodes") && !subject.version ? Severity::kNote : Severity::kWarning,
                  request.line_of("ntasks-per-node"),
                  fmt::format("srun takes over the {} tasks of the job and ignores --ntasks-per-node {}{}",
                              *whole.ntasks, *per_node, request.has("nodes") ? " before Slurm 23.02.5" : ""),
                  fmt::format("Give srun the number of tasks, too: --ntasks={}.", *nodes * *per_node));
  }
}

void check_tasks_uneven(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    const auto nodes = job.nodes(), ntasks = job.count("ntasks"), per_node = job.count("ntasks-per-node");
    if (!ntasks || !per_node) continue;
    std::string what;
    if (!job.has("nodes") && *ntasks > *per_node && *ntasks % *per_node != 0) {
      what = fmt::format("{} tasks with {} on each node do not fill the last node", *ntasks, *per_node);
    } else if (nodes == 1 && *ntasks < *per_node) {
      what = fmt::format("--ntasks-per-node {} contradicts --ntasks {} on one node", *per_node, *ntasks);
    } else if (nodes && *nodes > 1 && *ntasks >= *nodes && *ntasks < *nodes * *per_node) {
      what = fmt::format("{} nodes with {} tasks on each are {} tasks, not {}", *nodes, *per_node, *nodes * *per_node,
                         *ntasks);
    }
    if (what.empty()) continue;
    finder.add(
        job.line_of("ntasks ntasks-per-node"),
        fmt::format("{}; SLURM_NTASKS_PER_NODE then says {}, but srun starts {} in all", what, *per_node, *ntasks));
  }
}

void check_fewer_tasks(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    const auto nodes = job.nodes(), ntasks = job.count("ntasks");
    if (!nodes || !ntasks || *ntasks >= *nodes) continue;
    finder.add(job.line_of("ntasks nodes"), fmt::format("{} cannot run on {} nodes; Slurm warns and gives {}",
                                                        counted(*ntasks, "task"), *nodes, counted(*ntasks, "node")));
  }
}

void check_ntasks_per_gpu_ntasks(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    const auto per_gpu = job.count("ntasks-per-gpu"), ntasks = job.count("ntasks");
    const auto per_node = job.gpus_per_node(), nodes = job.nodes();
    const bool is_by_node = per_node && nodes && !job.has("gpus");
    const auto gpus = is_by_node ? std::optional(*per_node * *nodes) : job.gpus("gpus");
    if (!per_gpu || !gpus || !ntasks || *per_gpu * *gpus == *ntasks) continue;
    const auto made = *per_gpu * *gpus;
    const auto line = job.line_of("ntasks-per-gpu ntasks");
    if (*ntasks < made) {
      finder.add(
          line,
          fmt::format(
              "--ntasks-per-gpu {} and {} make {} tasks; --ntasks {} has no effect on srun, but SLURM_NTASKS says {}",
              *per_gpu, counted(*gpus, "GPU"), made, *ntasks, *ntasks));
    } else if (is_by_node) {
      finder.add_as(Severity::kError, line,
                    fmt::format("{} tasks are more than --ntasks-per-gpu {} allows on {}, and the job is refused",
                                *ntasks, *per_gpu, counted(*gpus, "GPU")));
    } else {
      finder.add(line,
                 fmt::format("--ntasks-per-gpu {} and --gpus {} make {} tasks, but --ntasks is {}: {}", *per_gpu, *gpus,
                             made, *ntasks,
                             *ntasks % *per_gpu == 0 ? "srun starts all of them, and more of them share a GPU"
                                                     : "srun says: Invalid generic resource (gres) specification"));
    }
  }
}

void check_exclusive_share(const Subject& subject, Finder& finder) {
  const bool is_refused = subject.version && *subject.version >= Version{23, 2, 0};
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    if (!request.has("exclusive") || !request.has("oversubscribe")) return;
    finder.add_as(is_refused ? Severity::kError : Severity::kWarning, request.line_of("exclusive oversubscribe"),
                  "--exclusive and --oversubscribe exclude each other since Slurm 23.02; before, the last one counted");
  });
}

void check_time_min(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    const auto most = job.minutes(), least = parse_minutes(job.value("time-min"));
    if (!most || job.value("time-min").empty() || !least || *most < 0 || *least <= *most) continue;
    finder.add(job.line_of("time time-min"), "--time-min is longer than --time, and the job is refused");
  }
}

void check_hint(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    if (!request.has("hint")) return;
    for (const auto* other : {"ntasks-per-core", "threads-per-core", "extra-node-info", "cpu-bind"}) {
      if (!request.has(other)) continue;
      const auto bind = request.value("cpu-bind");
      if (std::string_view(other) == "cpu-bind" && (bind.empty() || bind == "verbose" || bind == "v" || bind == "none"))
        continue;
      finder.add(request.line_of(fmt::format("hint {}", other)),
                 fmt::format("--hint is ignored without a message, because --{} is given too", other));
      return;
    }
  });
}

void check_ntasks_per_core(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    const auto tasks = request.count("ntasks-per-core"), threads = request.count("threads-per-core");
    if (!tasks || !threads || *tasks <= *threads) return;
    finder.add(request.line_of("ntasks-per-core threads-per-core"),
               fmt::format("--ntasks-per-core {} is more than --threads-per-core {}, and refused since Slurm 23.02",
                           *tasks, *threads));
  });
}

void check_segment(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    const auto segment = job.count("segment"), nodes = job.nodes();
    if (!segment || !nodes || *nodes <= *segment || *nodes % *segment == 0) continue;
    finder.add(job.line_of("segment nodes"),
               fmt::format("{} nodes are not divisible by --segment {}, and the job is refused", *nodes, *segment));
  }
}

void check_arbitrary(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    if (!job.value("distribution").starts_with("arbitrary") || !job.has("nodes")) continue;
    finder.add(job.line_of("distribution nodes"), "--distribution=arbitrary and --nodes exclude each other");
  }
}

/// Whether the tasks of an array write to files of their own if this is the name of their output.
bool is_name_of_a_task(std::string_view name, const Subject& subject) {
  const auto array = subject.script.job().value("array");
  for (size_t i = 0; i + 1 < name.size(); ++i) {
    if (name[i] != '%') continue;
    size_t end = i + 1;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    if (end >= name.size()) return false;
    if (std::string_view("ajJ").find(name[end]) != std::string_view::npos) return true;
    // The last digit of the index, since 24.11; the number of the job in another form, since 25.11.
    const bool has_b = !subject.version || *subject.version >= Version{24, 11, 0};
    if (name[end] == 'b' && has_b && largest_index(array).value_or(0) < 10) return true;
    if (name[end] == 'S' && (!subject.version || *subject.version >= Version{25, 11, 0})) return true;
    i = end;  // of "%%" the second one too
  }
  return false;
}

void check_array_output(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  if (!job.has("array") || job.value("open-mode").starts_with("a")) return;
  const auto array = job.value("array");
  if (array.find_first_of(",-") == array.npos && !array.empty()) return;
  for (const auto* option : {"output", "error"}) {
    const auto value = job.value(option);
    if (value.empty() || value == "/dev/null" || lower_case(value) == "none" || is_name_of_a_task(value, subject))
      continue;
    finder.add(job.line_of(option),
               fmt::format("all tasks of the array write to {}, and each one empties it when it starts, unless the "
                           "site sets JobFileAppend",
                           value),
               "Put %a into the name: slurm-%A_%a.out.");
  }
}

void check_mail(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    if (job.has("mail-user") && !job.has("mail-type")) {
      finder.add(job.line_of("mail-user"), "--mail-user without --mail-type sends nothing");
    }
  }
}

void check_no_time(const Subject& subject, Finder& finder) {
  if (subject.is_command_line || !subject.script.job().options().problems.empty()) return;
  const auto& job = subject.script.job();
  if (job.has("time") || subject.script.directives.empty()) return;
  finder.add(subject.script.directives.front().line,
             "no time limit is given, so the partition's default holds, which is short at some sites, and the longest "
             "one at others");
}

void check_no_memory(const Subject& subject, Finder& finder) {
  if (subject.is_command_line || subject.script.directives.empty()) return;
  const auto& job = subject.script.job();
  if (job.has_any("mem mem-per-cpu mem-per-gpu")) return;
  const auto line = subject.script.directives.front().line;
  const auto partition = job.value("partition");
  const PartitionFacts* facts = nullptr;
  if (subject.site != nullptr) {
    for (const auto& [name, one] : subject.site->partitions) {
      if (partition.empty() ? one.is_default : name == partition) facts = &one;
    }
  }
  if (facts != nullptr && (facts->is_whole_node || !subject.site->shares_memory)) return;
  const bool has_default =
      facts != nullptr && (facts->has_default_memory || (facts->has_default_gpu_memory && job.asks_for_gpus()));
  if (facts != nullptr && !has_default) {
    finder.add_as(Severity::kWarning, line,
                  "no memory is asked for, and the cluster has no default: the job gets all memory of its nodes, and "
                  "nobody can share them");
  } else if (job.has("exclusive")) {
    finder.add(line, "no memory is asked for; --exclusive gives all CPUs, but only the default memory at many sites",
               "--mem=0 asks for all memory of a node.");
  } else {
    finder.add(line, "no memory is asked for, so the site's default holds, often some GB for each CPU");
  }
}

constexpr const char* kValidate =
    "Slurm src/common/slurm_opt.c, validate_options_salloc_sbatch_srun; tested with 22.05.8";

constexpr Rule kRequestRules[] = {
    {"memory-options-conflict", Severity::kError, "", "", "More than one of --mem, --mem-per-cpu, --mem-per-gpu",
     "They exclude each other: fatal.", "Keep one of them.", kValidate, check_memory_options},
    {"tasks-over-nodes", Severity::kError, "", "23.11", "More tasks than nodes times --ntasks-per-node",
     "sbatch refuses the job. Since 24.05, --ntasks takes precedence (CHANGELOG 24.05.0rc1).",
     "Give nodes and --ntasks-per-node alone.", kTried, check_tasks_fit},
    {"tasks-per-node-ignored", Severity::kWarning, "", "", "srun ignores --ntasks-per-node",
     "With more tasks than fit, srun runs all of them, with a warning among the output.",
     "Give --nodes and --ntasks-per-node alone.", kTried, check_tasks_ignored},
    {"tasks-uneven", Severity::kWarning, "", "", "Fewer tasks than nodes times --ntasks-per-node",
     "The job is accepted. Its variables contradict each other, and nodes have unequal numbers of tasks.",
     "Give --nodes and --ntasks-per-node alone.",
     "Slurm src/sbatch/opt.c, set_envs, 22.05.8 to 26.05.3; sbatch and srun 22.05.8 (tests/slurm/check_test.cpp)",
     check_tasks_uneven},
    {"fewer-tasks-than-nodes", Severity::kWarning, "", "", "Fewer tasks than nodes",
     "Slurm reduces the number of nodes and only warns.", "Ask for as many nodes as tasks, or use --ntasks-per-node.",
     kTried, check_fewer_tasks},
    {"cpus-per-gpu-with-cpus-per-task", Severity::kError, "", "", "--cpus-per-gpu with --cpus-per-task",
     "Refused as an invalid gres specification until 23.02, and fatal since 23.11 (CHANGELOG 23.11.0rc1).",
     "Keep --cpus-per-task.", kValidate, nullptr},
    {"ntasks-per-gpu-conflict", Severity::kError, "", "",
     "--ntasks-per-gpu with --ntasks-per-node, --gpus-per-task, --gpus-per-socket or --tres-per-task", "fatal.",
     "Give --gpus-per-node and --ntasks-per-node.", kValidate, nullptr},
    {"ntasks-per-gpu-overrides", Severity::kWarning, "", "", "--ntasks-per-gpu makes another number of tasks",
     "srun starts GPUs times --ntasks-per-gpu tasks, or --ntasks if that is more; with GPUs on each node, more are "
     "refused.",
     "Leave --ntasks out.", kTried, check_ntasks_per_gpu_ntasks},
    {"ntasks-per-gpu-pending", Severity::kWarning, "", "25.05.0", "--ntasks-per-gpu with --cpus-per-task",
     "Such jobs stay pending for ever.", "Give --gpus-per-node and --ntasks-per-node.",
     "Slurm CHANGELOG 25.05.1: Fix jobs requesting --ntasks-per-gpu and --cpus-per-task staying in pending state "
     "forever",
     nullptr},
    {"exclusive-with-oversubscribe", Severity::kError, "", "", "--exclusive with --oversubscribe",
     "Refused since 23.02; before, the last one counts without a message.", "Keep one of them.",
     "Slurm CHANGELOG 23.02.0rc1: Change --oversubscribe and --exclusive to be mutually exclusive",
     check_exclusive_share},
    {"core-and-thread-spec", Severity::kError, "", "", "--core-spec with --thread-spec", "fatal.", "Keep one of them.",
     kValidate, nullptr},
    {"quiet-and-verbose", Severity::kError, "", "", "--quiet with --verbose", "sbatch refuses both together.",
     "Keep one of them.", kTried, nullptr},
    {"requeue-contradiction", Severity::kWarning, "", "", "--requeue with --no-requeue", "The last one counts.",
     "Keep one of them.", kTried, nullptr},
    {"time-min-over-time", Severity::kError, "", "", "--time-min over --time",
     "Slurm says: Invalid time-min specification.", "Let --time be the longer one.", kTried, check_time_min},
    {"hint-ignored", Severity::kWarning, "", "", "--hint with options that switch it off",
     "sbatch and srun drop --hint, and say so with --verbose alone.", "Keep --hint or the other options.",
     "Slurm src/common/slurm_opt.c, validate_hint_option", check_hint},
    {"hint-with-sockets", Severity::kWarning, "25.11", "", "--hint with --cores-per-socket or --sockets-per-node",
     "--hint is dropped.", "Keep --hint or the other options.",
     "Slurm CHANGELOG 25.11.0rc1: Job option --hint is now mutually exclusive with both", nullptr},
    {"ntasks-per-core-over-threads", Severity::kError, "23.02", "", "--ntasks-per-core over --threads-per-core",
     "The programs check this and abort.", "Let --ntasks-per-core be at most --threads-per-core.",
     "Slurm CHANGELOG 23.02.0rc1: check and abort if ntasks-per-core > threads-per-core", check_ntasks_per_core},
    {"segment-not-divisor", Severity::kError, "26.05", "", "The number of nodes is not divisible by --segment",
     "fatal.", "Ask for a multiple of --segment.",
     "Slurm CHANGELOG 26.05.0rc1: validate --segment option in client tools", check_segment},
    {"arbitrary-with-nodes", Severity::kError, "23.11", "", "--distribution=arbitrary with --nodes",
     "The file of hosts determines the nodes.", "Leave --nodes out.",
     "Slurm 23.11.11 src/common/slurm_opt.c: --nodes is incompatible with --distribution=arbitrary", check_arbitrary},
    {"array-output-collides", Severity::kWarning, "", "", "All tasks of an array write to one file",
     "Each task truncates the file when it starts.", "Use %A_%a, or %j.",
     "Slurm src/slurmd/common/fname.c, 22.05.8 to 25.05.8, and src/common/print_fields.c, 25.11 and 26.05.3; "
     "src/slurmd/slurmstepd/io.c, io_get_file_flags; sbatch 22.05.8",
     check_array_output},
    {"mail-without-type", Severity::kNote, "", "", "--mail-user without --mail-type",
     "Mails are sent for --mail-type alone.", "Add --mail-type=END,FAIL.",
     "Slurm src/slurmctld/job_mgr.c, _copy_job_desc_to_job_record: mail_type stays 0; 22.05.8 to 26.05.3", check_mail},
    {"no-time", Severity::kNote, "", "", "No time limit", "Short jobs start earlier, and defaults surprise.",
     "Add --time=HH:MM:SS.",
     "Slurm src/slurmctld/job_mgr.c, _valid_job_part: default_time; node_scheduler.c: otherwise max_time",
     check_no_time},
    {"no-memory", Severity::kNote, "", "", "No memory is asked for",
     "The default may be too small, or all memory of a node.", "Add --mem=SIZE, or --mem-per-cpu.",
     "Slurm src/plugins/select, _job_test: Allocate all node memory; gres_select_util.c: DefMemPerGPU; 22.05.8 to "
     "26.05.3",
     check_no_memory},
};

}  // namespace

void find_exclusions(std::string_view rule, const Subject& subject, Finder& finder) {
  for (const auto& one : kExclusions) {
    if (one.rule != rule) continue;
    for_each_request(subject, [&](const Request& request, Program program, bool /*is_step*/) {
      if ((program & one.programs) == 0 || !request.has(one.option) || !request.has(one.other)) return;
      finder.add(request.line_of(fmt::format("{} {}", one.option, one.other)),
                 fmt::format(fmt::runtime(one.message), one.option, one.other));
    });
  }
}

std::span<const Rule> request_rules() { return kRequestRules; }

}  // namespace yoke::slurm::check
