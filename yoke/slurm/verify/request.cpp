#include "yoke/slurm/verify/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/slurm/check/options.h"
#include "yoke/slurm/check/request.h"

namespace yoke::slurm {
namespace {

using Values = std::map<std::string, std::string>;

/// The values of srun's options by their long names; the last one of a name counts.
/// Errors  kInvalidArgument: srun would refuse the options.
Values values_of(const std::vector<std::string>& options) {
  std::vector<check::OptionWord> words;
  for (const auto& option : options) words.push_back({.text = option});
  const auto parsed = check::parse_options(check::kSrun, words);
  if (!parsed.problems.empty()) {
    const auto& problem = parsed.problems.front();
    throw Error(ErrorCode::kInvalidArgument, "{}: srun has no such option, or it lacks a value{}",
                printable(problem.written), problem.hint.empty() ? "" : fmt::format("; see --{}", problem.hint));
  }
  Values values;
  for (const auto& given : parsed.given) values["--" + std::string(given.spec->name)] = given.value;
  return values;
}

/// The smallest number of nodes: 2 of "2-4".
std::optional<int64_t> fewest_nodes(std::string_view text) {
  const auto range = check::parse_nodes(text);
  return range && range->min > 0 ? std::optional(range->min) : std::nullopt;
}

/// Whether a --cpu-bind such as "verbose,mask_cpu:0x3" has a kind that begins with `kind`.
bool has_kind(std::string_view cpu_bind, std::string_view kind) {
  return std::ranges::any_of(split(cpu_bind, ','), [&](std::string_view part) { return part.starts_with(kind); });
}

int64_t tasks_per_node(const StepRequest& request) {
  return (request.num_tasks + request.num_nodes - 1) / request.num_nodes;
}

}  // namespace

StepRequest read_step_request(const std::vector<std::string>& options, const Environment& environment,
                              const std::optional<Version>& version) {
  const auto values = values_of(options);
  const auto text = [&](const std::string& option, const char* variable) -> std::optional<std::string> {
    if (const auto found = values.find(option); found != values.end()) return found->second;
    return *variable == '\0' ? std::nullopt : environment.find(variable);
  };
  const auto number = [&](const std::string& option, const char* variable,
                          const auto& parse) -> std::optional<int64_t> {
    const auto value = text(option, variable);
    if (!value) return std::nullopt;
    const auto parsed = parse(*value);
    if (!parsed) throw Error(ErrorCode::kInvalidArgument, "{} is '{}'; give a number", option, printable(*value));
    return *parsed > 0 ? parsed : std::nullopt;  // --gpus=0 asks for none
  };
  StepRequest request;
  const auto tasks = number("--ntasks", "SLURM_NTASKS", check::parse_count),
             per_node = number("--ntasks-per-node", "SLURM_NTASKS_PER_NODE", check::parse_count);
  request.num_nodes = number("--nodes", "SLURM_JOB_NUM_NODES", fewest_nodes).value_or(1);
  request.num_tasks = tasks.value_or(request.num_nodes * per_node.value_or(1));
  request.cpus_per_task = number("--cpus-per-task", "SRUN_CPUS_PER_TASK", check::parse_count);
  if (!request.cpus_per_task && version && *version >= kInheritsCpus) {
    request.cpus_per_task = number("--cpus-per-task", "SLURM_CPUS_PER_TASK", check::parse_count);
  }
  request.gpus_per_task = number("--gpus-per-task", "SLURM_GPUS_PER_TASK", check::parse_gpus);
  request.gpus_per_node = number("--gpus-per-node", "SLURM_GPUS_PER_NODE", check::parse_gpus);
  request.gpus = number("--gpus", "SLURM_GPUS", check::parse_gpus);
  if (const auto gres = text("--gres", "SLURM_GRES"); gres && check::gpus_of_gres(*gres)) {
    request.gpus_per_node = number("--gres", "SLURM_GRES", check::gpus_of_gres);
  }
  request.cpu_bind = text("--cpu-bind", "SLURM_CPU_BIND").value_or("");
  request.gpu_bind = text("--gpu-bind", "SLURM_GPU_BIND").value_or("");
  return request;
}

std::vector<std::string> describe(const StepRequest& request) {
  const auto per_node = tasks_per_node(request);
  std::vector<std::string> lines = {fmt::format("{} tasks on {} node{}, {} on each", request.num_tasks,
                                                request.num_nodes, request.num_nodes == 1 ? "" : "s", per_node)};
  lines.push_back(request.cpus_per_task ? fmt::format("each task should have {} CPUs", *request.cpus_per_task)
                                        : "each task should have the CPUs that --cpu-bind chooses, one by default");
  if (request.gpus_per_task) {
    lines.push_back(fmt::format("each task should have {} GPU{} of its own", *request.gpus_per_task,
                                *request.gpus_per_task == 1 ? "" : "s"));
  } else if (request.gpus_per_node) {
    lines.push_back(fmt::format("each task should see {} GPUs, and choose by its local rank", *request.gpus_per_node));
  } else if (request.gpus) {
    lines.push_back(fmt::format("the step should have {} GPUs on all nodes", *request.gpus));
  } else {
    lines.emplace_back("no task should have a GPU");
  }
  return lines;
}

std::vector<VerifyFinding> judge(const StepRequest& request) {
  std::vector<VerifyFinding> findings;
  const auto per_node = tasks_per_node(request);
  const bool is_unbound = has_kind(request.cpu_bind, "no");  // "none" or "no"
  if (request.gpus_per_task && per_node > 1 && request.gpu_bind != "none" &&
      request.gpu_bind.find(",none") == request.gpu_bind.npos) {
    findings.push_back({{},
                        "--gpus-per-task gives each task a control group with its own GPUs, where Slurm confines "
                        "devices; NCCL and RCCL then cannot share memory between the GPUs of a node (IPC)",
                        "ask by --gpus-per-node instead, or add --gpu-bind=none"});
  }
  const bool has_given_cpus = has_kind(request.cpu_bind, "mask_") || has_kind(request.cpu_bind, "map_");
  if (!request.cpus_per_task && !is_unbound && !has_given_cpus && (request.gpus_per_task || request.gpus_per_node)) {
    findings.push_back({{},
                        "without --cpus-per-task, srun gives each task one core, whatever the job has",
                        "give --cpus-per-task to srun too: Slurm 22.05 and 23.02 do not take it from the job"});
  }
  if (is_unbound && per_node > 1) {
    findings.push_back({{},
                        "with --cpu-bind=none, the tasks of a node share all of its CPUs",
                        "start one yoke run on each node, which binds its ranks, or use --cpu-bind=cores"});
  }
  if (!request.gpus_per_task && request.gpus_per_node && per_node > *request.gpus_per_node) {
    findings.push_back({{},
                        fmt::format("{} tasks of a node share {} GPUs", per_node, *request.gpus_per_node),
                        "ask for as many GPUs as tasks on each node"});
  }
  return findings;
}

std::vector<VerifyFinding> judge(const StepRequest& request, const Site& site) {
  std::vector<VerifyFinding> findings;
  const auto per_node = tasks_per_node(request);
  const auto gpus = request.gpus_per_task ? *request.gpus_per_task * per_node : request.gpus_per_node.value_or(0);
  if (gpus == 0 || site.num_gpus == 0) return findings;
  const auto add = [&](std::string text, std::string advice) {
    findings.push_back({{}, std::move(text), std::move(advice)});
  };
  if (gpus > site.num_gpus) {
    add(fmt::format("{} GPUs on each node are asked for, but a node of {} has {}", gpus, site.name, site.num_gpus),
        "use more nodes with fewer tasks on each");
  }
  const auto cpus = request.cpus_per_task.value_or(1) * per_node;
  if (site.num_cpus && cpus > *site.num_cpus) {
    add(fmt::format("{} CPUs on each node are asked for, but a job can have {} of a node of {}", cpus, *site.num_cpus,
                    site.name),
        fmt::format("give --cpus-per-task={}", std::max<int64_t>(*site.num_cpus / per_node, 1)));
  }
  const auto at = request.cpu_bind.find("mask_cpu:");
  if (at == request.cpu_bind.npos || !site.has_masks() || gpus != site.num_gpus || per_node != gpus) return findings;
  const auto masks = split(std::string_view(request.cpu_bind).substr(at + 9), ',');
  for (size_t i = 0; i < std::min(masks.size(), site.gpus.size()); ++i) {
    const auto mask = CpuSet::parse_mask(masks[i]);
    if (mask && mask->intersects(site.gpus[i].cpus)) continue;
    add(fmt::format("the mask of task {} is {}, but GPU {} of {} is close to the CPUs {}", i, printable(masks[i]), i,
                    site.name, site.gpus[i].cpus.to_list()),
        fmt::format("use {}, or the script of `yoke slurm script`", site.gpus[i].cpus.to_mask()));
  }
  return findings;
}

}  // namespace yoke::slurm
