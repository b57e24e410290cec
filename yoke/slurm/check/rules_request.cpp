// Rules about requests that contradict themselves: refused, or silently something else.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

constexpr const char* kTested = "sbatch and srun 22.05.8 (tests/slurm/check_test.cpp)";

/// Reports at the later of two options, if a request has both.
void tell_both(const Subject& subject, Finder& finder, const char* a, const char* b, const std::string& message) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    if (request.has(a) && request.has(b)) finder.add(request.line_of(a, b), message);
  });
}

void check_memory_options(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program program, bool /*is_step*/) {
    int64_t line = 0;
    int count = 0;
    for (const auto* option : {"mem", "mem-per-cpu", "mem-per-gpu"}) {
      count += request.has(option) ? 1 : 0;
      line = std::max(line, request.line_of(option));
    }
    if (count < 2) return;
    finder.add(line, fmt::format("{} refuses more than one of --mem, --mem-per-cpu and --mem-per-gpu", name(program)));
  });
}

void check_tasks_fit(const Subject& subject, Finder& finder) {
  if (subject.program == kSrun) return;
  for (const auto& job : subject.script.components) {
    const auto nodes = job.nodes(), ntasks = job.count("ntasks"), per_node = job.ntasks_per_node();
    if (!nodes || !ntasks || !per_node || *ntasks <= *nodes * *per_node) continue;
    finder.add(std::max(job.line_of("ntasks", "ntasks-per-node"), job.line_of("nodes")),
               fmt::format("{} tasks do not fit on {} node{} with {} tasks on each; sbatch 22.05 says: Requested node "
                           "configuration is not available",
                           *ntasks, *nodes, *nodes == 1 ? "" : "s", *per_node));
  }
}

void check_tasks_ignored(const Subject& subject, Finder& finder) {
  const auto judge = [&](const Request& request, const Layout& layout) {
    const auto nodes = layout.nodes, ntasks = request.count("ntasks"), per_node = request.ntasks_per_node();
    if (!nodes || !ntasks || !per_node || *ntasks <= *nodes * *per_node) return;
    finder.add(request.line_of("ntasks", "ntasks-per-node"),
               fmt::format("srun ignores --ntasks-per-node {} with {} tasks on {} node{}, and only warns", *per_node,
                           *ntasks, *nodes, *nodes == 1 ? "" : "s"));
  };
  if (subject.program == kSrun)
    judge(subject.script.job(), {.nodes = subject.script.job().nodes(),
                                 .ntasks = {},
                                 .ntasks_per_node = {},
                                 .cpus_per_task = {},
                                 .gpus_per_node = {}});
  for (const auto& step : steps_of(subject)) judge(step.request, step.layout);
  const auto& job = subject.script.job();
  const auto whole = layout_of(job);
  if (subject.script.text.find("unset SLURM") != std::string::npos || assigns(subject.script, "SLURM_NTASKS")) return;
  if (!whole.ntasks || (!job.has("ntasks") && !job.has("ntasks-per-node"))) return;
  for (const auto& step : steps_of(subject)) {
    const auto& request = step.request;
    const auto nodes = request.has("nodes") ? request.nodes() : whole.nodes;
    const auto per_node = request.ntasks_per_node();
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
    const auto nodes = job.nodes(), ntasks = job.count("ntasks"), per_node = job.ntasks_per_node();
    if (!job.has("nodes") && ntasks && per_node && *ntasks > *per_node && *ntasks % *per_node != 0) {
      const auto needed = (*ntasks + *per_node - 1) / *per_node;
      finder.add(job.line_of("ntasks", "ntasks-per-node"),
                 fmt::format("{} tasks with {} on each node do not fill the last node; SLURM_TASKS_PER_NODE then says "
                             "{}(x{}), but srun starts {}",
                             *ntasks, *per_node, *per_node, needed, *ntasks));
      continue;
    }
    if (nodes == 1 && ntasks && per_node && *ntasks < *per_node) {
      finder.add(job.line_of("ntasks", "ntasks-per-node"),
                 fmt::format("--ntasks-per-node {} contradicts --ntasks {} on one node; SLURM_TASKS_PER_NODE then says "
                             "{}, but srun starts {}",
                             *per_node, *ntasks, *per_node, *ntasks));
      continue;
    }
    if (!nodes || !ntasks || !per_node || *nodes == 1 || *ntasks >= *nodes * *per_node || *ntasks < *nodes) continue;
    finder.add(
        job.line_of("ntasks", "ntasks-per-node"),
        fmt::format("{} nodes with {} tasks on each are {} tasks, not {}; SLURM_TASKS_PER_NODE then says {}(x{}), but "
                    "srun starts {}",
                    *nodes, *per_node, *nodes * *per_node, *ntasks, *per_node, *nodes, *ntasks));
  }
}

void check_fewer_tasks(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    const auto nodes = job.nodes(), ntasks = job.count("ntasks");
    if (!nodes || !ntasks || *ntasks >= *nodes) continue;
    finder.add(job.line_of("ntasks", "nodes"),
               fmt::format("{} task{} cannot run on {} nodes; Slurm warns and gives {} node{}", *ntasks,
                           *ntasks == 1 ? "" : "s", *nodes, *ntasks, *ntasks == 1 ? "" : "s"));
  }
}

void check_cpus_per_gpu_task(const Subject& subject, Finder& finder) {
  tell_both(subject, finder, "cpus-per-gpu", "cpus-per-task",
            "--cpus-per-gpu and --cpus-per-task exclude each other, and the job is refused");
}

void check_ntasks_per_gpu(const Subject& subject, Finder& finder) {
  for (const auto* other : {"ntasks-per-node", "gpus-per-task", "gpus-per-socket", "tres-per-task"}) {
    tell_both(subject, finder, "ntasks-per-gpu", other,
              fmt::format("--ntasks-per-gpu and --{} exclude each other, and the job is refused", other));
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
    const auto line = job.line_of("ntasks-per-gpu", "ntasks");
    if (*ntasks < made) {
      finder.add(line,
                 fmt::format("--ntasks-per-gpu {} and {} GPU{} make {} tasks; --ntasks {} has no effect on srun, but "
                             "SLURM_NTASKS says {}",
                             *per_gpu, *gpus, *gpus == 1 ? "" : "s", made, *ntasks, *ntasks));
    } else if (is_by_node) {
      finder.add_as(Severity::kError, line,
                    fmt::format("{} tasks are more than --ntasks-per-gpu {} allows on {} GPU{}, and the job is refused",
                                *ntasks, *per_gpu, *gpus, *gpus == 1 ? "" : "s"));
    } else {
      finder.add(line,
                 fmt::format("--ntasks-per-gpu {} and --gpus {} make {} tasks, but --ntasks is {}: {}", *per_gpu, *gpus,
                             made, *ntasks,
                             *ntasks % *per_gpu == 0 ? "srun starts all of them, and more of them share a GPU"
                                                     : "srun says: Invalid generic resource (gres) specification"));
    }
  }
}

void check_ntasks_per_gpu_cpus(const Subject& subject, Finder& finder) {
  tell_both(subject, finder, "ntasks-per-gpu", "cpus-per-task",
            "a job with --ntasks-per-gpu and --cpus-per-task may stay pending for ever before Slurm 25.05.1");
}

void check_gpus_multiple(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    const auto gpus = request.gpus("gpus"), per_node = request.gpus_per_node();
    if (!gpus || !per_node || *per_node == 0) return;
    const auto line = std::max(request.line_of("gpus"), request.line_of("gpus-per-node", "gres"));
    if (*gpus % *per_node != 0) {
      finder.add(line, fmt::format("--gpus {} is not a multiple of {} GPUs on each node, and the job is refused", *gpus,
                                   *per_node));
    } else if (const auto range = request.node_range();
               range && (*gpus / *per_node < range->min || *gpus / *per_node > range->max)) {
      finder.add(line,
                 fmt::format("--gpus {} with {} GPUs on each node needs {} nodes, but {} are asked for; the job is "
                             "refused",
                             *gpus, *per_node, *gpus / *per_node, request.value("nodes")));
    }
  });
}

void check_gpus_tasks(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool is_step) {
    const auto gpus = request.gpus("gpus"), per_task = request.gpus("gpus-per-task"), ntasks = request.count("ntasks");
    if (gpus && per_task && *per_task > 0 && *gpus % *per_task != 0) {
      finder.add(
          request.line_of("gpus", "gpus-per-task"),
          fmt::format("--gpus {} is not a multiple of --gpus-per-task {}; the job is refused", *gpus, *per_task));
      return;
    }
    if (gpus && per_task && !request.has("ntasks") && !is_step && request.nodes()) {
      const auto tasks =
          request.has("ntasks-per-node") ? request.ntasks_per_node().value_or(0) * *request.nodes() : *request.nodes();
      if (tasks > 0 && *per_task * tasks != *gpus) {
        finder.add(
            request.line_of("gpus", "gpus-per-task"),
            fmt::format("--gpus {} with {} GPU{} for a task are {} tasks, but the job has {} on its nodes, and is "
                        "refused",
                        *gpus, *per_task, *per_task == 1 ? "" : "s", *gpus / *per_task, tasks));
      }
      return;
    }
    if (!gpus || !per_task || !ntasks || *per_task * *ntasks == *gpus) return;
    finder.add(std::max(request.line_of("gpus"), request.line_of("gpus-per-task", "ntasks")),
               fmt::format("{} tasks with {} GPU{} each need {} GPUs, not {}; the job is refused", *ntasks, *per_task,
                           *per_task == 1 ? "" : "s", *per_task * *ntasks, *gpus));
  });
}

void check_gpus_per_task_node(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    const auto per_task = job.gpus("gpus-per-task"), per_node = job.gpus_per_node();
    const auto layout = layout_of(job);
    const auto tasks = layout.ntasks_per_node;
    const auto line_of_both = std::max(job.line_of("gpus-per-task"), job.line_of("gpus-per-node", "gres"));
    // Without a number of tasks, Slurm takes as many as the GPUs allow.
    if (!job.has("ntasks") && !job.has("ntasks-per-node")) continue;
    if (per_task && per_node && *per_node > 0 && !tasks && layout.ntasks &&
        *per_task * *layout.ntasks % *per_node != 0) {
      finder.add(
          line_of_both,
          fmt::format("{} tasks with {} GPU{} each use {} GPUs, which cannot be {} on each node; the job is refused",
                      *layout.ntasks, *per_task, *per_task == 1 ? "" : "s", *per_task * *layout.ntasks, *per_node));
    }
    if (!per_task || !per_node || !tasks || *per_task * *tasks == *per_node) continue;
    const auto line = line_of_both;
    const auto message =
        fmt::format("{} tasks on a node with {} GPU{} each use {} GPUs, but {} are asked for on each node", *tasks,
                    *per_task, *per_task == 1 ? "" : "s", *per_task * *tasks, *per_node);
    if (*per_task * *tasks > *per_node) {
      finder.add(line, message + "; the job is refused");
    } else {
      finder.add(line, message + "; Slurm 22.05 refuses the job");
    }
  }
}

void check_gres_twice(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    if (!request.has("gpus-per-node") || !gpus_of_gres(request.value("gres"))) return;
    finder.add(request.line_of("gpus-per-node", "gres"),
               "--gres=gpu and --gpus-per-node exclude each other since Slurm 26.05, which refuses the job");
  });
}

void check_gres_typed(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    std::string typed, untyped;
    int64_t line = 0;
    for (const auto* option : {"gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"}) {
      const auto value = request.value(option);
      const bool is_gres = std::string_view(option) == "gres";
      if (value.empty() || !(is_gres ? gpus_of_gres(value) : parse_gpus(value))) continue;
      const bool has_type = is_gres ? !gpu_types_of_gres(value).empty() : !parse_count(value);
      (has_type ? typed : untyped) = fmt::format("--{}={}", option, value);
      line = std::max(line, request.line_of(option));
    }
    if (typed.empty() || untyped.empty()) return;
    finder.add(line,
               fmt::format("{} and {} are refused together, because one names a type of GPUs and the other does not",
                           typed, untyped));
  });
}

void check_gres_differs(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool is_step) {
    const auto gres = gpus_of_gres(request.value("gres")), per_node = request.gpus("gpus-per-node");
    if (!gres || !per_node || *gres == *per_node) return;
    if (gpu_types_of_gres(request.value("gres")).empty() != parse_count(request.value("gpus-per-node")).has_value())
      return;
    const auto steps = is_step ? std::vector<Step>{} : steps_of(subject);
    // srun reads SLURM_GPUS_PER_NODE unless it is told otherwise.
    const bool is_refused = *gres < *per_node && !assigns(subject.script, "SLURM_GPUS_PER_NODE") &&
                            std::any_of(steps.begin(), steps.end(), [](const Step& step) {
                              const auto& own = step.request;
                              return !own.has("gpus-per-node") && !own.has("gres") && !own.has_unknown();
                            });
    finder.add_as(
        is_refused ? Severity::kError : Severity::kWarning, request.line_of("gpus-per-node", "gres"),
        fmt::format("--gres asks for {} GPU{} on a node and --gpus-per-node for {}; Slurm gives {}, but "
                    "SLURM_GPUS_PER_NODE says {}{}",
                    *gres, *gres == 1 ? "" : "s", *per_node, *gres, *per_node,
                    is_refused ? fmt::format(", so srun says: Step requested gres_per_node=gpu:{} is more than the "
                                             "job's gres_per_node=gpu:{}",
                                             *per_node, *gres)
                               : ""));
  });
}

void check_gres_name(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    const auto value = request.value("gres");
    for (const auto* wrong : {"gpus", "GPU", "GPUs", "cuda", "nvidia", "amd"}) {
      if (value != wrong && !value.starts_with(std::string(wrong) + ":") &&
          !value.starts_with(std::string(wrong) + "=")) {
        continue;
      }
      finder.add(request.line_of("gres"),
                 fmt::format("--gres {} names no resource; Slurm says: Invalid generic resource "
                             "(gres) specification",
                             value),
                 "Write --gres=gpu:NUMBER or --gres=gpu:TYPE:NUMBER.");
    }
    for (const auto part : split(value, ',')) {
      if (!part.starts_with("gpu_") && !part.starts_with("gpu/") && !part.starts_with("gpu-")) continue;
      finder.add(request.line_of("gres"), fmt::format("--gres {} is refused; a colon separates name and type", value),
                 "Write --gres=gpu:TYPE:NUMBER.");
    }
    if (value.starts_with("gpu=")) {
      finder.add(request.line_of("gres"), fmt::format("--gres {} is refused; a colon separates name and number", value),
                 "Write --gres=gpu:NUMBER.");
    }
  });
}

void check_per_gpu_without(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    if (job.asks_for_gpus() || job.has_unknown()) continue;
    for (const auto* option : {"mem-per-gpu", "cpus-per-gpu"}) {
      if (!job.has(option)) continue;
      const bool is_memory = std::string_view(option) == "mem-per-gpu";
      const bool is_refused = is_memory || (subject.version && *subject.version >= Version{23, 2, 0});
      finder.add_as(is_refused ? Severity::kError : Severity::kWarning, job.line_of(option),
                    fmt::format("--{} without GPUs {}", option,
                                is_refused        ? "is refused"
                                : subject.version ? "has no effect"
                                                  : "has no effect in Slurm 22.05, and is refused since 23.02"),
                    "Ask for GPUs, such as --gpus-per-node=4, or leave it out.");
    }
    if (job.has("ntasks-per-gpu") && !job.has("nodes") && !job.has("ntasks")) {
      finder.add_as(Severity::kError, job.line_of("ntasks-per-gpu"),
                    "--ntasks-per-gpu needs a number of GPUs, nodes or tasks, and is refused");
    }
  }
}

void check_exclusive_share(const Subject& subject, Finder& finder) {
  const bool is_refused = subject.version && *subject.version >= Version{23, 2, 0};
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    if (!request.has("exclusive") || !request.has("oversubscribe")) return;
    finder.add_as(is_refused ? Severity::kError : Severity::kWarning, request.line_of("exclusive", "oversubscribe"),
                  "--exclusive and --oversubscribe exclude each other since Slurm 23.02; before, the last one counted");
  });
}

void check_specialised(const Subject& subject, Finder& finder) {
  tell_both(subject, finder, "core-spec", "thread-spec",
            "--core-spec and --thread-spec exclude each other, and the job is refused");
}

void check_quiet(const Subject& subject, Finder& finder) {
  tell_both(subject, finder, "quiet", "verbose", "--quiet and --verbose together are refused");
}

void check_requeue(const Subject& subject, Finder& finder) {
  tell_both(subject, finder, "requeue", "no-requeue",
            "--requeue and --no-requeue contradict each other; the last one counts");
}

void check_time_min(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    const auto most = job.minutes(), least = parse_minutes(job.value("time-min"));
    if (!most || job.value("time-min").empty() || !least || *most < 0 || *least <= *most) continue;
    finder.add(job.line_of("time", "time-min"), "--time-min is longer than --time, and the job is refused");
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
      finder.add(request.line_of("hint", other),
                 fmt::format("--hint is ignored without a message, because --{} is given too", other));
      return;
    }
  });
}

void check_hint_new(const Subject& subject, Finder& finder) {
  for (const auto* other : {"cores-per-socket", "sockets-per-node"}) {
    tell_both(subject, finder, "hint", other,
              fmt::format("since Slurm 25.11, --hint is ignored without a message if --{} is given too", other));
  }
}

void check_ntasks_per_core(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    const auto tasks = request.count("ntasks-per-core"), threads = request.count("threads-per-core");
    if (!tasks || !threads || *tasks <= *threads) return;
    finder.add(request.line_of("ntasks-per-core", "threads-per-core"),
               fmt::format("--ntasks-per-core {} is more than --threads-per-core {}, and refused since Slurm 23.02",
                           *tasks, *threads));
  });
}

void check_segment(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    const auto segment = job.count("segment"), nodes = job.nodes();
    if (!segment || !nodes || *nodes <= *segment || *nodes % *segment == 0) continue;
    finder.add(job.line_of("segment", "nodes"),
               fmt::format("{} nodes are not divisible by --segment {}, and the job is refused", *nodes, *segment));
  }
}

void check_arbitrary(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    if (!job.value("distribution").starts_with("arbitrary") || !job.has("nodes")) continue;
    finder.add(job.line_of("distribution", "nodes"), "--distribution=arbitrary and --nodes exclude each other");
  }
}

void check_array_output(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  if (!job.has("array") || job.value("open-mode").starts_with("a")) return;
  const auto array = job.value("array");
  if (array.find_first_of(",-") == array.npos && !array.empty()) return;
  for (const auto* option : {"output", "error"}) {
    const auto value = job.value(option);
    if (value.empty() || value.find('%') == value.npos) {
      if (value.empty() || value == "/dev/null") continue;
    }
    bool is_separate = false;
    for (size_t i = 0; i + 1 < value.size(); ++i) {
      if (value[i] != '%') continue;
      size_t end = i + 1;
      while (end < value.size() && std::isdigit(static_cast<unsigned char>(value[end])) != 0) ++end;
      if (end < value.size() && (value[end] == 'a' || value[end] == 'j' || value[end] == 'J')) is_separate = true;
    }
    if (!is_separate) {
      finder.add(job.line_of(option),
                 fmt::format("all tasks of the array write to {}, and overwrite each other", value),
                 "Put %a into the name: slurm-%A_%a.out.");
    }
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
             "no time limit is given, so the partition's default holds, which is "
             "short at some sites, and the longest one at others");
}

void check_no_memory(const Subject& subject, Finder& finder) {
  if (subject.is_command_line || subject.script.directives.empty()) return;
  const auto& job = subject.script.job();
  if (job.has_memory()) return;
  const auto line = subject.script.directives.front().line;
  const auto partition = job.value("partition");
  const PartitionFacts* facts = nullptr;
  if (subject.site != nullptr) {
    for (const auto& [name, one] : subject.site->partitions) {
      if (partition.empty() ? one.is_default : name == partition) facts = &one;
    }
  }
  if (facts != nullptr && (facts->is_whole_node || !subject.site->shares_memory)) return;
  if (facts != nullptr && !facts->has_default_memory) {
    finder.add_as(Severity::kWarning, line,
                  "no memory is asked for, and the cluster has no default: the job gets all "
                  "memory of its nodes, and nobody can share them");
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
     "Give nodes and --ntasks-per-node alone.", kTested, check_tasks_fit},
    {"tasks-per-node-ignored", Severity::kWarning, "", "", "srun ignores --ntasks-per-node",
     "With more tasks than fit, srun runs all of them, with a warning among the output.",
     "Give --nodes and --ntasks-per-node alone.", kTested, check_tasks_ignored},
    {"tasks-uneven", Severity::kWarning, "", "", "Fewer tasks than nodes times --ntasks-per-node",
     "The job is accepted. Its variables contradict each other, and nodes have unequal numbers of tasks.",
     "Give --nodes and --ntasks-per-node alone.", kTested, check_tasks_uneven},
    {"fewer-tasks-than-nodes", Severity::kWarning, "", "", "Fewer tasks than nodes",
     "Slurm reduces the number of nodes and only warns.", "Ask for as many nodes as tasks, or use --ntasks-per-node.",
     kTested, check_fewer_tasks},
    {"cpus-per-gpu-with-cpus-per-task", Severity::kError, "", "", "--cpus-per-gpu with --cpus-per-task",
     "Refused as an invalid gres specification until 23.02, and fatal since 23.11 (CHANGELOG 23.11.0rc1).",
     "Keep --cpus-per-task.", kValidate, check_cpus_per_gpu_task},
    {"ntasks-per-gpu-conflict", Severity::kError, "", "",
     "--ntasks-per-gpu with --ntasks-per-node, --gpus-per-task, --gpus-per-socket or --tres-per-task", "fatal.",
     "Give --gpus-per-node and --ntasks-per-node.", kValidate, check_ntasks_per_gpu},
    {"ntasks-per-gpu-overrides", Severity::kWarning, "", "", "--ntasks-per-gpu makes another number of tasks",
     "srun starts GPUs times --ntasks-per-gpu tasks, or --ntasks if that is more; with GPUs on each node, more are "
     "refused.",
     "Leave --ntasks out.", kTested, check_ntasks_per_gpu_ntasks},
    {"ntasks-per-gpu-pending", Severity::kWarning, "", "25.05.0", "--ntasks-per-gpu with --cpus-per-task",
     "Such jobs stay pending for ever.", "Give --gpus-per-node and --ntasks-per-node.",
     "Slurm CHANGELOG 25.05.1: Fix jobs requesting --ntasks-per-gpu and --cpus-per-task staying in pending state "
     "forever",
     check_ntasks_per_gpu_cpus},
    {"gpus-not-multiple", Severity::kError, "", "", "--gpus does not fit --gpus-per-node",
     "The number of nodes follows from both, and must be a whole number that is asked for.",
     "Keep --gpus-per-node alone.", kTested, check_gpus_multiple},
    {"gpus-tasks-mismatch", Severity::kError, "", "", "--gpus, --gpus-per-task and the tasks do not fit together",
     "Slurm says: Based on --gpus and --gpus-per-task number of requested tasks differ from -n/--ntasks.",
     "Leave --gpus out.", kTested, check_gpus_tasks},
    {"gpus-per-task-mismatch", Severity::kError, "", "", "--gpus-per-task does not fit the GPUs on a node",
     "Slurm 22.05 says: Requested node configuration is not available. Later versions were not tried with fewer GPUs.",
     "Leave --gpus-per-task out, and let each task choose its GPU by its local rank.", kTested,
     check_gpus_per_task_node},
    {"gres-with-gpus-per-node", Severity::kError, "26.05", "", "--gres=gpu with --gpus-per-node",
     "Both ask for GPUs on each node; 26.05 refuses both together.", "Keep --gpus-per-node.",
     "Slurm CHANGELOG 26.05.0rc1: Make --gres=gpu:N and --gpus-per-node mutually exclusive", check_gres_twice},
    {"gres-differs", Severity::kWarning, "", "25.11", "--gres=gpu and --gpus-per-node ask for different numbers",
     "Accepted without a message: --gres counts, but srun asks for what --gpus-per-node says, and is refused if that "
     "is more.",
     "Keep --gpus-per-node.", kTested, check_gres_differs},
    {"gres-type-and-count", Severity::kError, "", "", "GPUs with a type in one option, and without in another",
     "Slurm says: Invalid GRES specification (with and without type identification).",
     "Name the type in all, or in none.",
     "Slurm src/common/gres.c, 22.05.8, and src/interfaces/gres.c, 26.05.3, _merge_generic_data; sbatch 22.05.8 "
     "(tests/slurm/check_test.cpp)",
     check_gres_typed},
    {"gres-name", Severity::kError, "", "", "--gres with a name that is not a resource", "The name of GPUs is gpu.",
     "Write --gres=gpu:NUMBER.", kTested, check_gres_name},
    {"per-gpu-without-gpus", Severity::kWarning, "", "",
     "--mem-per-gpu, --cpus-per-gpu or --ntasks-per-gpu without GPUs",
     "--mem-per-gpu and --ntasks-per-gpu are refused; --cpus-per-gpu has no effect in 22.05, and is refused since "
     "23.02.",
     "Ask for GPUs.",
     "sbatch and srun 22.05.8 (tests/slurm/check_test.cpp); Slurm 23.02.0, commit 28dd0f079f: Requested cpus_per_tres "
     "but did not request any GPU",
     check_per_gpu_without},
    {"exclusive-with-oversubscribe", Severity::kError, "", "", "--exclusive with --oversubscribe",
     "Refused since 23.02; before, the last one counts without a message.", "Keep one of them.",
     "Slurm CHANGELOG 23.02.0rc1: Change --oversubscribe and --exclusive to be mutually exclusive",
     check_exclusive_share},
    {"core-and-thread-spec", Severity::kError, "", "", "--core-spec with --thread-spec", "fatal.", "Keep one of them.",
     kValidate, check_specialised},
    {"quiet-and-verbose", Severity::kError, "", "", "--quiet with --verbose", "sbatch refuses both together.",
     "Keep one of them.", kTested, check_quiet},
    {"requeue-contradiction", Severity::kWarning, "", "", "--requeue with --no-requeue", "The last one counts.",
     "Keep one of them.", kTested, check_requeue},
    {"time-min-over-time", Severity::kError, "", "", "--time-min over --time",
     "Slurm says: Invalid time-min specification.", "Let --time be the longer one.", kTested, check_time_min},
    {"hint-ignored", Severity::kWarning, "", "", "--hint with options that switch it off",
     "sbatch and srun drop --hint, and say so with --verbose alone.", "Keep --hint or the other options.",
     "Slurm src/common/slurm_opt.c, validate_hint_option", check_hint},
    {"hint-with-sockets", Severity::kWarning, "25.11", "", "--hint with --cores-per-socket or --sockets-per-node",
     "--hint is dropped.", "Keep --hint or the other options.",
     "Slurm CHANGELOG 25.11.0rc1: Job option --hint is now mutually exclusive with both", check_hint_new},
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
     "slurm.schedmd.com/sbatch.html, filename pattern", check_array_output},
    {"mail-without-type", Severity::kNote, "", "", "--mail-user without --mail-type",
     "Mails are sent for --mail-type alone.", "Add --mail-type=END,FAIL.", "slurm.schedmd.com/sbatch.html, --mail-user",
     check_mail},
    {"no-time", Severity::kNote, "", "", "No time limit", "Short jobs start earlier, and defaults surprise.",
     "Add --time=HH:MM:SS.", "slurm.schedmd.com/sbatch.html, --time", check_no_time},
    {"no-memory", Severity::kNote, "", "", "No memory is asked for",
     "The default may be too small, or all memory of a node.", "Add --mem=SIZE, or --mem-per-cpu.",
     "slurm.schedmd.com/slurm.conf.html, DefMemPerNode", check_no_memory},
};

}  // namespace

std::span<const Rule> request_rules() { return kRequestRules; }

}  // namespace yoke::slurm::check
