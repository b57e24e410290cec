#include "yoke/slurm/verify/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>

#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/slurm/words/options.h"
#include "yoke/slurm/words/programs.h"
#include "yoke/slurm/words/request.h"

namespace yoke::slurm {
namespace {

using Values = std::map<std::string, std::string>;

/// The values of srun's options by their long names; the last one of a name counts.
/// Errors  kInvalidArgument: srun would refuse the options.
Values values_of(const std::vector<std::string>& options) {
  const auto parsed = check::parse_options(check::kSrun, check::option_words(options));
  if (!parsed.problems.empty()) {
    const auto& problem = parsed.problems.front();
    throw Error(ErrorCode::kInvalidArgument, "{}: srun has no such option, or it lacks a value{}",
                printable(problem.written), problem.hint.empty() ? "" : fmt::format("; see --{}", problem.hint));
  }
  Values values;
  for (const auto& given : parsed.given) values[fmt::format("--{}", given.spec->name)] = given.value;
  return values;
}

/// The smallest number of nodes: 2 of "2-4".
std::optional<int64_t> fewest_nodes(std::string_view text) {
  const auto range = check::parse_nodes(text);
  return range && range->min > 0 ? std::optional(range->min) : std::nullopt;
}

/// The value of --cpu-bind without the words that only make srun talk: "mask_cpu:0x3,0xc".
std::string bind_of(std::string_view cpu_bind) {
  std::string rest;
  for (const auto word : split(cpu_bind, ',')) {
    if (word == "verbose" || word == "v" || word == "quiet" || word == "q") continue;
    rest += (rest.empty() ? "" : ",") + std::string(word);
  }
  return rest;
}

/// A CPU of map_cpu: "7", "0x7".
std::optional<CpuSet> parse_cpu(std::string_view word) {
  int64_t number = 0;
  const bool is_hex = word.starts_with("0x");
  if (is_hex) word.remove_prefix(2);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, is_hex ? 16 : 10);
  const bool is_number = error == std::errc() && end == word.data() + word.size();
  return is_number && number >= 0 && number < CpuSet::kMaxCpus ? std::optional(CpuSet{number}) : std::nullopt;
}

/// Judges a list of CPUs or masks, which Slurm begins again if a node has more tasks.
std::vector<VerifyFinding> judge_list(std::string_view list, bool is_mask, const std::string& bind, int64_t per_node) {
  constexpr int64_t kMostTasks = 1024;
  std::vector<CpuSet> entries;
  for (auto word : split(list, ',')) {
    const auto star = word.find('*');  // "0xff*4" repeats
    const auto repeat = star == word.npos ? 1 : check::parse_count(word.substr(star + 1)).value_or(1);
    word = word.substr(0, star);
    const auto cpus = is_mask ? CpuSet::parse_mask(word) : parse_cpu(word);
    if (!cpus) {
      return {{{},
               fmt::format("'{}' in --cpu-bind is not a {}, and srun refuses it", printable(word),
                           is_mask ? "mask of CPUs, such as 0xff" : "number of a CPU"),
               "correct it; `yoke bind --format mask` prints masks"}};
    }
    entries.insert(entries.end(), static_cast<size_t>(std::min(repeat, kMostTasks)), *cpus);
  }
  if (entries.empty()) return {};
  CpuSet sharing, shared;
  const auto of_task = [&](int64_t task) { return entries[static_cast<size_t>(task) % entries.size()]; };
  per_node = std::min(per_node, kMostTasks);
  for (int64_t task = 0; task < per_node; ++task) {
    for (int64_t other = 0; other < per_node; ++other) {
      if (other == task || !of_task(other).intersects(of_task(task))) continue;
      sharing.add(task);
      shared |= of_task(other) & of_task(task);
    }
  }
  if (sharing.empty()) return {};
  return {{{},
           fmt::format("with --cpu-bind={}, the tasks {} of a node share the CPU{} {}", printable(bind),
                       sharing.to_list(), shared.size() == 1 ? "" : "s", shared.to_list()),
           "give each task of a node CPUs of its own; a list that is too short begins again"}};
}

/// Source  slurm_verify_cpu_bind() in src/common/proc_args.c of Slurm 22.05.
std::vector<VerifyFinding> judge_bind(std::string_view text, int64_t per_node) {
  const auto bind = lower_case(text);
  constexpr std::string_view kWords =
      "none no n rank core sockets socket cores rank_ldom ldom threads thread ldoms one_thread";
  if (bind.empty() || check::has_word(kWords, bind)) return {};
  for (const std::string_view kind : {"map_cpu:", "mask_cpu:", "map_ldom:", "mask_ldom:"}) {
    if (!bind.starts_with(kind) || bind.size() == kind.size()) continue;
    if (kind.ends_with("ldom:")) return {};
    return judge_list(std::string_view(bind).substr(kind.size()), kind == "mask_cpu:", bind, per_node);
  }
  return {{{},
           fmt::format("srun does not know --cpu-bind={}, and refuses it", printable(bind)),
           "it takes none, cores, threads, sockets, ldoms, map_cpu:LIST and mask_cpu:LIST"}};
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
  for (const auto* option : {"--gpus", "--gpus-per-node", "--gpus-per-task", "--gres"}) {
    const auto found = values.find(option);
    if (found == values.end()) continue;
    request.refuses_gpus = request.refuses_gpus || found->second == "0" || found->second == "none";
  }
  request.cpu_bind = text("--cpu-bind", "SLURM_CPU_BIND").value_or("");
  request.gpu_bind = text("--gpu-bind", "SLURM_GPU_BIND").value_or("");
  return request;
}

void check_no_program(const std::vector<std::string>& options) {
  const auto parsed = check::parse_options(check::kSrun, check::option_words(options));
  // Options of plugins are not known here, and their values look like programs.
  if (!parsed.problems.empty() || parsed.has_unknown || parsed.num_used >= options.size()) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "{} is not an option of srun; after -- give options alone, as in `yoke slurm verify -- -n 4`, and no program",
      printable(options[parsed.num_used]));
}

Error step_failure(const CommandOutput& output, std::chrono::milliseconds limit) {
  auto error = failure_of("srun", output, limit);
  if (error.code() != ErrorCode::kFailedPrecondition || output.timed_out) return error;
  constexpr size_t kMostLines = 4;
  std::vector<std::string> lines;
  for (const auto line : lines_of(output.err.empty() ? output.out : output.err)) {
    const bool is_empty_talk = line.find("Job step aborted") != line.npos || line.starts_with("Try ") ||
                               line.find("Application launch failed") != line.npos || words_of(line).empty();
    auto text = printable(line);
    if (text.ends_with('.')) text.pop_back();
    if (is_empty_talk || std::ranges::find(lines, text) != lines.end()) continue;
    if (lines.size() < kMostLines) lines.push_back(std::move(text));
  }
  if (lines.size() < 2 && (lines.empty() || std::string_view(error.what()).ends_with(lines[0]))) return error;
  return {error.code(), fmt::format("srun failed: {}", fmt::join(lines, "; "))};
}

std::vector<std::string> describe(const StepRequest& request) {
  const auto per_node = tasks_per_node(request);
  std::vector<std::string> lines = {fmt::format("{} on {}, {} on each", counted(request.num_tasks, "task"),
                                                counted(request.num_nodes, "node"), per_node)};
  lines.push_back(request.cpus_per_task ? fmt::format("each task should have {} CPUs", *request.cpus_per_task)
                                        : "each task should have the CPUs that --cpu-bind chooses, one by default");
  if (!request.wants_gpu()) {
    lines.emplace_back("no task should have a GPU");
  } else if (request.gpus_per_task) {
    lines.push_back(fmt::format("each task should have {} of its own", counted(*request.gpus_per_task, "GPU")));
  } else if (request.gpus_per_node) {
    lines.push_back(fmt::format("each task should see {} GPUs, and choose by its local rank", *request.gpus_per_node));
  } else {
    lines.push_back(fmt::format("the step should have {} GPUs on all nodes", *request.gpus));
  }
  return lines;
}

std::vector<VerifyFinding> judge(const StepRequest& request) {
  const auto per_node = tasks_per_node(request);
  const auto bind = bind_of(request.cpu_bind);
  auto findings = judge_bind(bind, per_node);
  const auto add = [&](std::string text, std::string advice) {
    findings.push_back({{}, std::move(text), std::move(advice)});
  };
  const bool is_unbound = bind == "none" || bind == "no" || bind == "n";
  if (request.gpus_per_task && per_node > 1 && request.gpu_bind != "none" &&
      request.gpu_bind.find(",none") == request.gpu_bind.npos) {
    add("--gpus-per-task gives each task a control group with its own GPUs, where Slurm confines devices; NCCL and "
        "RCCL then cannot share memory between the GPUs of a node (IPC)",
        "ask by --gpus-per-node instead, or add --gpu-bind=none");
  }
  const bool has_given_cpus = bind.starts_with("mask_") || bind.starts_with("map_");
  if (!request.cpus_per_task && !is_unbound && !has_given_cpus && (request.gpus_per_task || request.gpus_per_node)) {
    add("without --cpus-per-task, srun gives each task one core, whatever the job has",
        "give --cpus-per-task to srun too: Slurm 22.05 and 23.02 do not take it from the job");
  }
  if (is_unbound && per_node > 1) {
    add("with --cpu-bind=none, the tasks of a node share all of its CPUs",
        "start one yoke run on each node, which binds its ranks, or use --cpu-bind=cores");
  }
  if (!request.gpus_per_task && request.gpus_per_node && per_node > *request.gpus_per_node) {
    add(fmt::format("{} tasks of a node share {} GPUs", per_node, *request.gpus_per_node),
        "ask for as many GPUs as tasks on each node");
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
