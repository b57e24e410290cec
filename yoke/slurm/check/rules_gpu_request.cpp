// Rules about the GPUs of a request: numbers and types in several options that do not fit together.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

void check_gpus_multiple(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    const auto gpus = request.gpus("gpus"), per_node = request.gpus_per_node();
    if (!gpus || !per_node || *per_node == 0) return;
    const auto line = request.line_of("gpus gpus-per-node gres");
    if (*gpus % *per_node != 0) {
      finder.add(line, fmt::format("--gpus {} is not a multiple of {} GPUs on each node, and the job is refused", *gpus,
                                   *per_node));
    } else if (const auto range = request.node_range();
               range && (*gpus / *per_node < range->min || *gpus / *per_node > range->max)) {
      finder.add(
          line,
          fmt::format("--gpus {} with {} GPUs on each node needs {} nodes, but {} are asked for; the job is refused",
                      *gpus, *per_node, *gpus / *per_node, request.value("nodes")));
    }
  });
}

void check_gpus_tasks(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool is_step) {
    const auto gpus = request.gpus("gpus"), per_task = request.gpus("gpus-per-task"), ntasks = request.count("ntasks");
    if (gpus && per_task && *per_task > 0 && *gpus % *per_task != 0) {
      finder.add(
          request.line_of("gpus gpus-per-task"),
          fmt::format("--gpus {} is not a multiple of --gpus-per-task {}; the job is refused", *gpus, *per_task));
      return;
    }
    // With --cpus-per-task, Slurm does not take one task for each node, but as many as the GPUs allow.
    const bool counts_nodes =
        request.has("ntasks-per-node") || (!request.has("cpus-per-task") && !request.counts_tasks_by_cores());
    if (gpus && per_task && !request.has("ntasks") && !is_step && request.nodes()) {
      if (!counts_nodes) return;
      const auto tasks = request.has("ntasks-per-node")
                             ? request.count("ntasks-per-node").value_or(0) * *request.nodes()
                             : *request.nodes();
      if (tasks > 0 && *per_task * tasks != *gpus) {
        finder.add(
            request.line_of("gpus gpus-per-task"),
            fmt::format("--gpus {} with {} for a task are {} tasks, but the job has {} on its nodes, and is refused",
                        *gpus, counted(*per_task, "GPU"), *gpus / *per_task, tasks));
      }
      return;
    }
    if (!gpus || !per_task || !ntasks || *per_task * *ntasks == *gpus) return;
    finder.add(request.line_of("gpus gpus-per-task ntasks"),
               fmt::format("{} tasks with {} each need {} GPUs, not {}; the job is refused", *ntasks,
                           counted(*per_task, "GPU"), *per_task * *ntasks, *gpus));
  });
}

/// The tasks of a job as its GPUs are counted: without --ntasks, one for each node, unless --cpus-per-task is given.
std::optional<int64_t> tasks_for_gpus(const Request& job) {
  if (job.has("ntasks")) return job.count("ntasks");
  return job.has("cpus-per-task") || job.counts_tasks_by_cores() ? std::nullopt : job.nodes();
}

void check_gpus_per_task_node(const Subject& subject, Finder& finder) {
  for (const auto& job : subject.script.components) {
    const auto per_task = job.gpus("gpus-per-task"), per_node = job.gpus_per_node();
    if (!per_task || !per_node || *per_task == 0 || *per_node == 0) continue;
    const auto line = job.line_of("gpus-per-task gpus-per-node gres");
    const auto each = fmt::format("{} each", counted(*per_task, "GPU"));
    if (*per_node % *per_task != 0) {
      finder.add(line, fmt::format("{} GPUs on each node cannot be divided into tasks with {}; the job is refused",
                                   *per_node, each));
      continue;
    }
    if (job.has("ntasks-per-node")) {
      const auto tasks = job.count("ntasks-per-node");
      if (!tasks || *per_task * *tasks == *per_node) continue;
      finder.add(
          line,
          fmt::format("{} tasks on a node with {} use {} GPUs, but {} are asked for on each node; the job is refused",
                      *tasks, each, *per_task * *tasks, *per_node));
      continue;
    }
    const auto tasks = tasks_for_gpus(job), nodes = job.nodes();
    if (!tasks || job.has("gpus")) continue;
    const auto used = *per_task * *tasks;
    const auto num_nodes = std::min(nodes.value_or(1), *tasks);  // fewer tasks than nodes: fewer nodes
    const auto who = fmt::format("{} with {} use {}", counted(*tasks, "task"), each, counted(used, "GPU"));
    if (nodes && used > *per_node * num_nodes) {
      finder.add(line, fmt::format("{}, but {} with {} each have {}; the job is refused", who,
                                   counted(num_nodes, "node"), *per_node, *per_node * num_nodes));
    } else if (job.has("exclusive")) {
      continue;  // then fewer are accepted
    } else if (used < *per_node) {
      finder.add(line, fmt::format("{}, but {} are asked for on each node; the job is refused", who, *per_node));
    } else if (const bool is_new = subject.version && *subject.version >= Version{24, 5, 0};
               (is_new || !subject.version) && used - (num_nodes - 1) < *per_node) {
      finder.add_as(is_new ? Severity::kError : Severity::kWarning, line,
                    fmt::format("{}, but {} are asked for on each of {} nodes; Slurm refuses the job since 24.05", who,
                                *per_node, num_nodes));
    }
  }
}

void check_gres_twice(const Subject& subject, Finder& finder) {
  for_each_request(subject, [&](const Request& request, Program /*program*/, bool /*is_step*/) {
    if (!request.has("gpus-per-node") || !gpus_of_gres(request.value("gres"))) return;
    finder.add(request.line_of("gpus-per-node gres"),
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
                            std::ranges::any_of(steps, [](const Step& step) {
                              const auto& own = step.request;
                              return !own.has("gpus-per-node") && !own.has("gres") && !own.has_unknown();
                            });
    finder.add_as(
        is_refused ? Severity::kError : Severity::kWarning, request.line_of("gpus-per-node gres"),
        fmt::format(
            "--gres asks for {} on a node and --gpus-per-node for {}; Slurm gives {}, but SLURM_GPUS_PER_NODE says "
            "{}{}",
            counted(*gres, "GPU"), *per_node, *gres, *per_node,
            is_refused
                ? fmt::format(
                      ", so srun says: Step requested gres_per_node=gpu:{} is more than the job's gres_per_node=gpu:{}",
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
      finder.add(
          request.line_of("gres"),
          fmt::format("--gres {} names no resource; Slurm says: Invalid generic resource (gres) specification", value),
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

constexpr Rule kGpuRequestRules[] = {
    {"gpus-not-multiple", Severity::kError, "", "", "--gpus does not fit --gpus-per-node",
     "The number of nodes follows from both, and must be a whole number that is asked for.",
     "Keep --gpus-per-node alone.", kTried, check_gpus_multiple},
    {"gpus-tasks-mismatch", Severity::kError, "", "", "--gpus, --gpus-per-task and the tasks do not fit together",
     "Slurm says: Based on --gpus and --gpus-per-task number of requested tasks differ from -n/--ntasks.",
     "Leave --gpus out.",
     "Slurm src/common/gres.c 22.05.8, src/interfaces/gres.c 23.02.8 to 26.05.3, gres_job_state_validate and "
     "_test_gres_cnt; sbatch 22.05.8 (tests/slurm/check_test.cpp)",
     check_gpus_tasks},
    {"gpus-per-task-mismatch", Severity::kError, "", "", "--gpus-per-task does not fit the GPUs on a node",
     "The number of tasks on a node follows from both. Slurm says: Based on ... requested number of tasks per node "
     "differ, or: Requested node configuration is not available.",
     "Leave --gpus-per-task out, and let each task choose its GPU by its local rank.",
     "Slurm src/common/gres.c 22.05.8, src/interfaces/gres.c 26.05.3, _test_gres_cnt; "
     "src/plugins/select/cons_common/gres_select_filter.c 22.05.8, gres_select_filter_sock_core; "
     "src/plugins/topology/common/gres_filter.c 24.05 to 26.05.3, _set_max_gres (commit 038bd99e11); "
     "tests/slurm/check_test.cpp",
     check_gpus_per_task_node},
    {"gres-with-gpus-per-node", Severity::kError, "26.05", "", "--gres=gpu with --gpus-per-node",
     "Both ask for GPUs on each node; 26.05 refuses both together.", "Keep --gpus-per-node.",
     "Slurm CHANGELOG 26.05.0rc1: Make --gres=gpu:N and --gpus-per-node mutually exclusive", check_gres_twice},
    {"gres-differs", Severity::kWarning, "", "25.11", "--gres=gpu and --gpus-per-node ask for different numbers",
     "Accepted without a message: --gres counts, but srun asks for what --gpus-per-node says, and is refused if that "
     "is more.",
     "Keep --gpus-per-node.", kTried, check_gres_differs},
    {"gres-type-and-count", Severity::kError, "", "", "GPUs with a type in one option, and without in another",
     "Slurm says: Invalid GRES specification (with and without type identification).",
     "Name the type in all, or in none.",
     "Slurm src/common/gres.c, 22.05.8, and src/interfaces/gres.c, 26.05.3, _merge_generic_data; sbatch 22.05.8 "
     "(tests/slurm/check_test.cpp)",
     check_gres_typed},
    {"gres-name", Severity::kError, "", "", "--gres with a name that is not a resource", "The name of GPUs is gpu.",
     "Write --gres=gpu:NUMBER.", kTried, check_gres_name},
    {"per-gpu-without-gpus", Severity::kWarning, "", "",
     "--mem-per-gpu, --cpus-per-gpu or --ntasks-per-gpu without GPUs",
     "--mem-per-gpu and --ntasks-per-gpu are refused; --cpus-per-gpu has no effect in 22.05, and is refused since "
     "23.02.",
     "Ask for GPUs.",
     "sbatch and srun 22.05.8 (tests/slurm/check_test.cpp); Slurm 23.02.0, commit 28dd0f079f: Requested cpus_per_tres "
     "but did not request any GPU",
     check_per_gpu_without},
};

}  // namespace

std::span<const Rule> gpu_request_rules() { return kGpuRequestRules; }

}  // namespace yoke::slurm::check
