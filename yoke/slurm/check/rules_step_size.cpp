// Rules about the size and the place of steps: what a step asks for, against what its job has.
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

/// A job that surely does not get whole nodes, unless the partition gives nothing else.
bool asks_for_part_of_node(const Subject& subject, const Request& job) {
  if (job.has("exclusive") || job.has_unknown() || subject.script.is_het()) return false;
  const auto memory = job.value("mem");
  return (!memory.empty() && parse_mebibytes(memory).value_or(0) > 0) || job.has("mem-per-cpu") || !job.has("nodes");
}

/// The GPUs of a job on all of its nodes.
std::optional<int64_t> all_gpus(const Request& job, const Layout& layout) {
  if (job.has("gpus")) return job.gpus("gpus");
  if (const auto per_node = job.gpus_per_node(); per_node && layout.nodes) return *per_node * *layout.nodes;
  if (const auto per_task = job.gpus("gpus-per-task"); per_task && layout.ntasks) return *per_task * *layout.ntasks;
  return std::nullopt;
}

/// Whether srun takes over the number of tasks: the job has SLURM_NTASKS.
bool has_inherited_tasks(const Script& script) {
  const auto& job = script.job();
  return (job.has("ntasks") || job.has("ntasks-per-node")) && !job.has("ntasks-per-gpu") &&
         script.text.find("unset SLURM") == std::string::npos && !assigns(script, "SLURM_NTASKS");
}

/// The number of tasks of a step; 0 if it is not known.
int64_t tasks_of(const Script& script, const Request& step, const Layout& whole) {
  const bool is_inherited = has_inherited_tasks(script);
  if (step.has("ntasks")) return step.count("ntasks").value_or(0);
  if (step.has("ntasks-per-gpu")) return 0;
  // Since 23.02.5, srun -N with --ntasks-per-node starts that many tasks.
  if (step.has("ntasks-per-node") && (!is_inherited || step.has("nodes"))) return 0;
  if (is_inherited) return whole.ntasks.value_or(0);
  return (step.has("nodes") ? step.nodes() : whole.nodes).value_or(0);
}

void find_missing_gpus(const Subject& subject, const Step& step, const Layout& whole, Finder& finder) {
  const auto& job = subject.script.job();
  const auto& request = step.request;
  const auto* partition = partition_of(subject, job).partition;
  if (gets_whole_nodes(subject, job) || job.has_unknown() || request.has_unknown()) return;
  const auto line = step.line();
  const auto total = request.gpus("gpus"), per_node = request.gpus_per_node(), per_task = request.gpus("gpus-per-task");
  const bool asks = total.value_or(0) > 0 || per_node.value_or(0) > 0 || per_task.value_or(0) > 0;
  if (!job.asks_for_gpus()) {
    if (!asks || job.has("tres-per-task")) return;
    const auto severity = partition != nullptr                  ? Severity::kError
                          : asks_for_part_of_node(subject, job) ? Severity::kWarning
                                                                : Severity::kNote;
    finder.add_as(severity, line,
                  "the step asks for GPUs, but the job does not: unless its partition gives whole nodes, srun says: "
                  "Step requested GRES but job doesn't have GRES",
                  "Ask for GPUs in the job too, such as #SBATCH --gpus-per-node=1.");
    return;
  }
  auto has = all_gpus(job, whole);
  if (const auto nodes = request.count("ntasks") == 1 ? 1 : request.nodes().value_or(0);
      has && nodes > 0 && whole.gpus_per_node && (request.has("nodes") || request.has("ntasks"))) {
    has = std::min(*has, nodes * *whole.gpus_per_node);  // of the nodes of the step
  }
  if (total && has && *total > *has) {
    finder.add(line, fmt::format("the step asks for {} GPUs, but the job has {} on its nodes; srun says: Invalid "
                                 "generic resource (gres) specification",
                                 *total, *has));
    return;
  }
  if (!per_task) return;
  if (const auto of_job = job.gpus("gpus-per-task"); of_job && *per_task > *of_job) {
    finder.add(line, fmt::format("the step asks for {} GPUs for a task, but the job has {} for each; srun says: "
                                 "Invalid generic resource (gres) specification",
                                 *per_task, *of_job));
    return;
  }
  const auto tasks = tasks_of(subject.script, request, whole);
  if (!has || *per_task * tasks <= *has) return;
  finder.add(line, fmt::format("{} with {} each need {} GPUs, but the job has {}; srun refuses the step",
                               counted(tasks, "task"), counted(*per_task, "GPU"), *per_task * tasks, *has));
}

/// CPUs that a step needs at least, on nodes that have fewer of them for the job.
void find_missing_cpus(const Subject& subject, const Step& step, const Layout& whole, Finder& finder) {
  const auto& job = subject.script.job();
  const auto& request = step.request;
  constexpr std::string_view kOthers =
      "overcommit mincpus cpus-per-gpu threads-per-core hint ntasks-per-core ntasks-per-gpu extra-node-info";
  if (job.has("exclusive") || job.has_any(kOthers) || request.has_any(kOthers)) return;
  const auto* partition = partition_of(subject, job).partition;
  if (job.asks_for_gpus() || job.has_unknown() || (partition != nullptr && partition->is_whole_node)) return;
  const bool is_counted = job.has_any("ntasks ntasks-per-node cpus-per-task");
  if ((!is_counted && !asks_for_part_of_node(subject, job)) || !whole.ntasks) return;
  if (!is_counted && !job.has_any("mem mem-per-cpu mem-per-gpu")) return;
  if (job.has("cpus-per-task") && !whole.cpus_per_task) return;
  const auto for_each = whole.cpus_per_task.value_or(1);
  const bool is_inherited = !request.has("ntasks") && whole.ntasks != 1 && has_inherited_tasks(subject.script);
  const auto per_task = request.has("cpus-per-task") ? request.count("cpus-per-task") : std::optional<int64_t>(1);
  const auto tasks = tasks_of(subject.script, request, whole);
  if (tasks == 0 || !per_task || (request.has("nodes") && !request.nodes())) return;
  if (is_counted && request.has("ntasks") && tasks > *whole.ntasks * for_each)
    return;  // the rule says so about tasks alone
  auto most_tasks = *whole.ntasks;
  const auto asked = request.nodes() ? request.nodes() : whole.nodes;
  if (const auto& all = whole.nodes; all && asked && *asked <= *all && *all <= *whole.ntasks) {
    const auto nodes = std::min(*asked, tasks);
    const auto per_node = job.count("ntasks-per-node");
    most_tasks = per_node && !job.has("ntasks") ? nodes * *per_node : *whole.ntasks - (*all - nodes);
  }
  if (tasks * *per_task <= most_tasks * for_each) return;
  finder.add_as(Severity::kWarning, step.line(),
                fmt::format("the step needs {} CPUs for {}{}, but the job has {} on {}; srun says: More processors "
                            "requested than permitted, unless nodes are given as a whole or cores have several threads",
                            tasks * *per_task, counted(tasks, "task"),
                            is_inherited ? ", a number that srun takes over from the job" : "", most_tasks * for_each,
                            asked == 1 ? "a node" : "its nodes"),
                is_inherited ? "Give srun --ntasks, too." : "");
}

/// "0,2-3" is 3. nullopt if it is not such a list.
std::optional<int64_t> largest_component(std::string_view list) {
  int64_t largest = 0;
  for (const auto part : split(list, ',')) {
    const auto number = part.substr(part.find('-') == part.npos ? 0 : part.find('-') + 1);
    const auto value = number == "0" ? std::optional<int64_t>(0) : parse_count(number);
    if (!value) return std::nullopt;
    largest = std::max(largest, *value);
  }
  return largest;
}

}  // namespace

void find_missing_resources(const Subject& subject, const Step& step, const Layout& whole, Finder& finder) {
  find_missing_gpus(subject, step, whole, finder);
  find_missing_cpus(subject, step, whole, finder);
}

void find_missing_nodes(const Subject& subject, const Step& step, const std::vector<std::string>& hosts,
                        Finder& finder) {
  const auto whole = layout_of(subject.script.job());
  const auto& request = step.request;
  const auto tasks = request.has("ntasks") ? request.count("ntasks") : std::nullopt;
  auto needed = request.has("nodes") ? request.nodes() : whole.nodes;
  if (needed && tasks) needed = std::min(*needed, *tasks);
  if (request.has_unknown() || (request.has("ntasks") && !tasks)) return;
  const auto line = step.line();
  if (const auto excluded = hosts_in(request.value("exclude")); !hosts.empty() && !excluded.empty()) {
    const auto left = std::ranges::count_if(
        hosts, [&](const std::string& host) { return std::ranges::find(excluded, host) == excluded.end(); });
    if (left == 0 || (needed && left < *needed)) {
      finder.add(line, fmt::format("--exclude {} leaves {} of the job's nodes, but the step needs {}; srun refuses it",
                                   request.value("exclude"), left, needed.value_or(1)));
    }
  }
  const auto relative = request.value("relative");
  const auto first = relative == "0" ? std::optional<int64_t>(0) : parse_count(relative);
  if (first && whole.nodes && needed && *first + *needed > *whole.nodes) {
    finder.add(line,
               fmt::format("--relative {} and {} of the step are more than the {} of the job; srun refuses it", *first,
                           counted(*needed, "node"), *whole.nodes),
               "Nodes of the job are numbered from 0; give srun --nodes, too.");
  }
}

void find_missing_components(const Subject& subject, Finder& finder) {
  const auto& script = subject.script;
  // Without a size in the script, the command line of sbatch may ask for several components.
  const auto severity = script.is_het() || script.job().has("nodes") || script.job().has("ntasks") ? Severity::kError
                                                                                                   : Severity::kWarning;
  const auto whole = layout_of(script.job());
  for (const auto& command : script.commands) {
    if (command.name != "srun") continue;
    const Request request(command.options);
    if (request.has("jobid") || request.has_unknown()) continue;
    const auto line = command.words.front().line;
    const auto parts =
        1 + std::ranges::count_if(command.words, [](const OptionWord& word) { return word.text == ":"; });
    const auto group = request.value(request.has("het-group") ? "het-group" : "pack-group");
    const auto count = static_cast<int64_t>(script.components.size());
    if (const auto largest = group.empty() ? std::nullopt : largest_component(group);
        largest && (script.is_het() ? *largest >= count : parts == 1)) {
      finder.add_as(
          severity, line,
          script.is_het()
              ? fmt::format("--het-group {} names component {}, but the job has {}, numbered from 0; srun refuses it",
                            group, *largest, count)
              : fmt::format("--het-group {} is refused, because the job is not heterogeneous", group),
          "Write #SBATCH hetjob between the components, or leave --het-group out.");
    }
    if (parts > 1 && !script.is_het() && whole.nodes && parts > *whole.nodes) {
      finder.add_as(severity, line,
                    fmt::format("each of the {} parts of this srun needs nodes of its own, but the job has {}; srun "
                                "says: Allocation failure",
                                parts, *whole.nodes),
                    "Start several steps in the background, or use srun --multi-prog.");
    }
  }
}

}  // namespace yoke::slurm::check
