// Rules about what a cluster has: partitions, times, nodes. They need facts about it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

std::string time_text(int64_t minutes) {
  if (minutes >= 1440) return fmt::format("{}-{:02}:{:02}:00", minutes / 1440, minutes / 60 % 24, minutes % 60);
  return fmt::format("{:02}:{:02}:00", minutes / 60, minutes % 60);
}

/// The most nodes that a job may get; nullopt if that is not known.
std::optional<int64_t> most_nodes(const Request& job, const KnownPartition& place) {
  if (job.has("nodes") && !job.node_range()) return std::nullopt;
  auto most = place.partition->num_nodes;
  if (const auto& limit = place.partition->max_nodes; limit && most) most = std::min(*most, *limit);
  if (const auto range = job.node_range(); range && range->max > 0 && most) most = std::min(*most, range->max);
  return most;
}

std::string consequence(const SiteFacts& site, const char* reason) {
  if (site.refuses_at_once) return "and is refused";
  return fmt::format("so it is refused, or waits for ever ({})", reason);
}

void for_each_place(const Subject& subject,
                    const std::function<void(const Request& job, const KnownPartition& place)>& visit) {
  for (const auto& job : subject.script.components) {
    if (const auto place = partition_of(subject, job); place.partition != nullptr) visit(job, place);
  }
}

void check_partition(const Subject& subject, Finder& finder) {
  if (subject.site == nullptr || !subject.site->knows_all_partitions) return;
  for (const auto& job : subject.script.components) {
    if (job.has("clusters")) continue;
    const auto wanted = job.value("partition");
    for (const auto part : split(wanted, ',')) {
      const std::string name(part);
      if (name.empty() || name.find('$') != name.npos || subject.site->partitions.contains(name)) continue;
      finder.add(job.line_of("partition"),
                 fmt::format("this cluster has no partition {}; it has {}", name,
                             fmt::join(std::views::keys(subject.site->partitions), ", ")),
                 "Give a partition of the cluster; --no-cluster checks a script for another cluster.");
    }
  }
}

void check_closed(const Subject& subject, Finder& finder) {
  check_partition(subject, finder);
  for_each_place(subject, [&](const Request& job, const KnownPartition& place) {
    if (place.partition->closed_state.empty() || !job.has("partition")) return;
    finder.add(job.line_of("partition"),
               fmt::format("partition {} is {}; Slurm says: Required partition not available (inactive or drain)",
                           place.name, place.partition->closed_state),
               "Wait until it is open, or give another partition.");
  });
}

void check_time(const Subject& subject, Finder& finder) {
  for_each_place(subject, [&](const Request& job, const KnownPartition& place) {
    const auto minutes = job.minutes();
    if (!minutes || !place.partition->max_minutes) return;
    // 0 asks for no limit.
    if (*minutes > 0 && *minutes <= *place.partition->max_minutes) return;
    finder.add(
        job.line_of("time"),
        fmt::format("--time {} is over the limit of partition {}, {}, {}", job.value("time"), place.name,
                    time_text(*place.partition->max_minutes), consequence(*place.site, "PartitionTimeLimit")),
        fmt::format("Ask for at most {}, and resume from a checkpoint.", time_text(*place.partition->max_minutes)));
  });
}

void check_nodes(const Subject& subject, Finder& finder) {
  for_each_place(subject, [&](const Request& job, const KnownPartition& place) {
    const auto range = job.node_range();
    if (!range) return;
    auto most = place.partition->max_nodes;
    if (place.partition->num_nodes && (!most || *place.partition->num_nodes < *most)) most = place.partition->num_nodes;
    if (!most || range->min <= *most) return;
    finder.add(job.line_of("nodes"), fmt::format("{} nodes are more than partition {} allows, {}, {}", range->min,
                                                 place.name, *most, consequence(*place.site, "PartitionNodeLimit")));
  });
}

void check_gpus(const Subject& subject, Finder& finder) {
  for_each_place(subject, [&](const Request& job, const KnownPartition& place) {
    const auto gpus = job.gpus_per_node(), has_gpus = place.partition->gpus_per_node;
    if (const auto per_task = job.gpus("gpus-per-task"); per_task && place.partition->gpus_per_node) {
      const auto tasks = job.count("ntasks").value_or(1);
      const auto nodes = most_nodes(job, place);
      const auto on_node = *place.partition->gpus_per_node;
      if (*per_task > on_node || (nodes && *per_task * tasks > *nodes * on_node)) {
        finder.add(job.line_of("gpus-per-task"),
                   fmt::format("{} with {} each do not fit into partition {}, with {} GPUs on a node",
                               counted(tasks, "task"), counted(*per_task, "GPU"), place.name, on_node));
        return;
      }
    }
    if (const auto per_task = job.gpus("gpus-per-task"), tasks = job.count("ntasks-per-node");
        per_task && tasks && has_gpus && *per_task * *tasks > *has_gpus) {
      finder.add(job.line_of("gpus-per-task ntasks-per-node"),
                 fmt::format("{} tasks on a node with {} each need {} GPUs, but the nodes of partition {} have {}",
                             *tasks, counted(*per_task, "GPU"), *per_task * *tasks, place.name, *has_gpus));
      return;
    }
    for (const auto& [type, count] : job.typed_gpus_per_node()) {
      const auto known = place.partition->gpus_of_type.find(type);
      if (known == place.partition->gpus_of_type.end() || count <= known->second) continue;
      finder.add(job.line_of("gpus-per-node gres"),
                 fmt::format("{} GPUs of type {} on a node are asked for, but the nodes of partition {} have {}: "
                             "Requested node configuration is not available",
                             count, type, place.name, known->second));
      return;
    }
    const auto total = job.gpus("gpus"), most = most_nodes(job, place), has = place.partition->gpus_per_node;
    if (total && most && has && *total > *most * *has) {
      finder.add(job.line_of("gpus"), fmt::format("--gpus {} is more than {} of partition {} with {} GPUs have: "
                                                  "Requested node configuration is not available",
                                                  *total, counted(*most, "node"), place.name, *has));
      return;
    }
    if (!gpus || !place.partition->gpus_per_node || *gpus <= *place.partition->gpus_per_node) return;
    finder.add(job.line_of("gpus-per-node gres"),
               fmt::format("{} GPUs on a node are asked for, but the nodes of partition {} have {}: Requested node "
                           "configuration is not available",
                           *gpus, place.name, *place.partition->gpus_per_node));
  });
}

void check_cpus(const Subject& subject, Finder& finder) {
  for_each_place(subject, [&](const Request& job, const KnownPartition& place) {
    const auto layout = layout_of(job);
    const auto cpus = place.partition->cpus_per_node;
    if (!cpus || job.has("overcommit") || (job.has("cpus-per-task") && !layout.cpus_per_task)) return;
    const auto least = job.count("mincpus"), per_gpu = job.count("cpus-per-gpu");
    // Without --nodes, Slurm spreads the GPUs of --gpus over more nodes.
    const auto on_node = job.has("nodes") ? layout.gpus_per_node : job.gpus_per_node();
    const auto for_gpus = per_gpu ? *per_gpu * std::max<int64_t>(1, on_node.value_or(1)) : 0;
    if (std::max(least.value_or(0), for_gpus) > *cpus) {
      finder.add(job.line_of("mincpus cpus-per-gpu"),
                 fmt::format("{} CPUs on a node are asked for, but the nodes of partition {} have {}",
                             std::max(least.value_or(0), for_gpus), place.name, *cpus));
      return;
    }
    const auto for_each = layout.cpus_per_task.value_or(1);
    const auto all = job.count("ntasks"), most = most_nodes(job, place);
    auto tasks = job.count("ntasks-per-node").value_or(1);
    // Since 24.05, --ntasks-per-node is the most beside --ntasks (CHANGELOG 24.05.0rc1).
    if (all && (!subject.version || *subject.version >= Version{24, 5, 0})) tasks = std::min(tasks, *all);
    if (all && most && tasks * for_each <= *cpus && for_each <= *cpus && *all > *most * (*cpus / for_each)) {
      finder.add(job.line_of("ntasks cpus-per-task"),
                 fmt::format("{} tasks with {} each do not fit on {} of partition {} with {} CPUs", *all,
                             counted(for_each, "CPU"), counted(*most, "node"), place.name, *cpus),
                 "Ask for fewer tasks or CPUs.");
      return;
    }
    if (for_each * tasks <= *cpus) return;
    finder.add(job.line_of("cpus-per-task ntasks-per-node"),
               fmt::format("{} with {} on a node need {} CPUs, but the nodes of partition {} have {}",
                           counted(tasks, "task"), counted(for_each, "CPU"), tasks * for_each, place.name, *cpus));
  });
}

void check_memory(const Subject& subject, Finder& finder) {
  for_each_place(subject, [&](const Request& job, const KnownPartition& place) {
    const auto for_cpu = job.value("mem-per-cpu").empty() ? std::nullopt : parse_mebibytes(job.value("mem-per-cpu"));
    if (for_cpu && place.partition->memory_mib && (!job.has("cpus-per-task") || job.count("cpus-per-task"))) {
      const auto cpus = job.count("cpus-per-task").value_or(1);
      if (*for_cpu * cpus > *place.partition->memory_mib) {
        finder.add(
            job.line_of("mem-per-cpu cpus-per-task"),
            fmt::format("--mem-per-cpu {} for {} is more than the nodes of partition {} have, {} MiB: Requested node "
                        "configuration is not available",
                        job.value("mem-per-cpu"), counted(cpus, "CPU"), place.name, *place.partition->memory_mib));
        return;
      }
    }
    const auto memory = job.value("mem").empty() ? std::nullopt : parse_mebibytes(job.value("mem"));
    if (!memory || !place.partition->memory_mib || *memory <= *place.partition->memory_mib) return;
    finder.add(
        job.line_of("mem"),
        fmt::format(
            "--mem {} is more than the nodes of partition {} have, {} MiB: Memory specification can not be satisfied",
            job.value("mem"), place.name, *place.partition->memory_mib));
  });
}

void check_gpu_types(const Subject& subject, Finder& finder) {
  const auto judge = [&](const Request& request, const KnownPartition& place) {
    const auto& known = place.partition->gpu_types;
    for (const auto& type : request.gpu_types()) {
      if (known.empty() || known.contains(type)) continue;
      const auto line = request.line_of("gres gpus gpus-per-node gpus-per-task gpus-per-socket");
      finder.add(line, fmt::format("partition {} has no GPUs of type {}; it has {}", place.name, type,
                                   fmt::join(known, ", ")));
    }
  };
  for_each_place(subject, judge);
  if (const auto place = partition_of(subject, subject.script.job()); place.partition != nullptr) {
    for (const auto& step : steps_of(subject)) judge(step.request, place);
  }
}

void check_gres_known(const Subject& subject, Finder& finder) {
  for_each_place(subject, [&](const Request& job, const KnownPartition& place) {
    const auto value = job.value("gres");
    if (!place.site->knows_all_partitions || value == "none" || value.find('$') != value.npos) return;
    for (auto part : split(value, ',')) {
      if (part.starts_with("gres/") || part.starts_with("gres:")) part.remove_prefix(5);
      const auto name = std::string(part.substr(0, part.find_first_of(":=")));
      // gres-name says so about wrong names of GPUs, and gpus-over-node if there are none.
      if (name.empty() || name.starts_with("gpu") || place.partition->gres_names.contains(name)) continue;
      const auto names = fmt::format("{}", fmt::join(place.partition->gres_names, ", "));
      finder.add(job.line_of("gres"), fmt::format("the nodes of partition {} have no {}; they have {}", place.name,
                                                  name, names.empty() ? "no such resources" : names));
    }
  });
}

void check_array_size(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  const auto largest = largest_index(job.value("array"));
  if (!largest) return;
  const auto known = subject.site == nullptr ? std::nullopt : subject.site->max_array_size;
  if (known && *largest >= *known) {
    finder.add(job.line_of("array"),
               fmt::format("index {} is refused, because MaxArraySize of this cluster is {}: indexes go to {}",
                           *largest, *known, *known - 1));
  } else if (!known && *largest > 1000) {
    finder.add_as(
        Severity::kNote, job.line_of("array"),
        fmt::format("index {} is refused unless the site raised MaxArraySize, which is 1001 by default", *largest));
  }
}

/// LUMI-G: 56 of 64 cores.
void check_cores(const Subject& subject, Finder& finder) {
  const auto& job = subject.script.job();
  const auto* facts = built_in_facts(job.value("partition"), job.value("account"));
  if (facts == nullptr || facts == subject.site) return;
  const auto layout = layout_of(job);
  const auto cpus = layout.cpus_per_task, tasks = layout.ntasks_per_node;
  if (!cpus || !tasks || *cpus * *tasks <= 56 || *cpus * *tasks > 112 || job.value("hint") == "multithread" ||
      job.value("threads-per-core") == "2") {
    return;
  }
  finder.add(job.line_of("cpus-per-task ntasks-per-node"),
             fmt::format("{} tasks with {} cores are {} cores on a node, but jobs on LUMI-G get 56; the job never runs",
                         *tasks, *cpus, *cpus * *tasks),
             "Use at most 7 cores for each of 8 tasks.");
}

constexpr const char* kFacts =
    "scontrol show partition of this cluster, or the site's own pages; Slurm src/slurmctld/job_mgr.c, "
    "_part_access_check and _valid_job_part; node_scheduler.c, _set_err_msg; sbatch 22.05.8 "
    "(tests/slurm/check_test.cpp)";

constexpr Rule kLimitRules[] = {
    {"unknown-partition", Severity::kError, "", "", "A partition that the cluster does not have, or that takes no jobs",
     "Slurm says: invalid partition specified.", "Give one of the cluster's partitions.", kFacts, check_closed},
    {"time-over-limit", Severity::kError, "", "", "--time over the partition's limit",
     "Refused with EnforcePartLimits; otherwise the job waits for ever.", "Ask for less time.", kFacts, check_time},
    {"nodes-over-limit", Severity::kError, "", "", "More nodes than the partition has or allows",
     "Refused with EnforcePartLimits; otherwise the job waits for ever.", "Ask for fewer nodes.", kFacts, check_nodes},
    {"gpus-over-node", Severity::kError, "", "", "More GPUs than a node or the partition has",
     "Slurm says: Requested node configuration is not available.", "Ask for more nodes.", kFacts, check_gpus},
    {"cpus-over-node", Severity::kError, "", "", "More CPUs than a node or the partition has",
     "Slurm says: CPU count per node can not be satisfied.", "Ask for more nodes or fewer CPUs.", kFacts, check_cpus},
    {"memory-over-node", Severity::kError, "", "", "More memory than a node has",
     "Slurm says: Memory specification can not be satisfied.", "Ask for less memory.", kFacts, check_memory},
    {"unknown-gpu-type", Severity::kError, "", "", "GPUs of a type that the partition does not have",
     "Slurm says: Requested node configuration is not available. Capitals count.", "Give one of the types, or none.",
     kFacts, check_gpu_types},
    {"unknown-gres", Severity::kError, "", "", "A resource that no node of the partition has",
     "Slurm says: Invalid generic resource (gres) specification, or Requested node configuration is not available.",
     "Ask for what `sinfo -o '%P %G'` lists.", kFacts, check_gres_known},
    {"array-over-limit", Severity::kError, "", "", "An index of an array over MaxArraySize",
     "Slurm says: Invalid job array specification.", "Use several arrays, or let a task do several indexes.",
     "Slurm src/slurmctld/job_mgr.c, _valid_array_inx; src/common/read_config.h, DEFAULT_MAX_ARRAY_SIZE 1001; sbatch "
     "22.05.8 (tests/slurm/check_test.cpp)",
     check_array_size},
    {"cores-reserved", Severity::kError, "", "", "Cores that the system keeps",
     "LUMI-G nodes have 64 cores, of which jobs get 56.", "Ask for at most 56 cores.",
     "docs.lumi-supercomputer.eu, LUMI-G example batch scripts", check_cores},
};

}  // namespace

std::span<const Rule> limit_rules() { return kLimitRules; }

}  // namespace yoke::slurm::check
