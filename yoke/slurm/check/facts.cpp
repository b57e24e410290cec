#include "yoke/slurm/check/facts.h"

#include <algorithm>
#include <charconv>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/slurm/words/programs.h"
#include "yoke/slurm/words/request.h"

namespace yoke::slurm::check {
namespace {

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

void raise(std::optional<int64_t>& most, const std::optional<int64_t>& value) {
  if (value) most = std::max(most.value_or(0), *value);
}

SiteFacts make_lumi_g() {
  SiteFacts facts;
  // Source  docs.lumi-supercomputer.eu, LUMI-G example batch scripts and Slurm partitions
  for (const auto& [name, minutes, nodes, is_whole] :
       {std::tuple{"standard-g", 2 * 1440, 1024, true}, {"small-g", 3 * 1440, 4, false}, {"dev-g", 180, 32, false}}) {
    facts.partitions[name] = {.max_minutes = minutes,
                              .max_nodes = nodes,
                              .cpus_per_node = 112,
                              .gpus_per_node = 8,
                              .has_default_memory = true,
                              .is_whole_node = is_whole};
  }
  // GCD 0 is next to the cores 48 to 55 of NUMA node 3, and so on; both GCDs of a module share a NUMA node.
  for (const int64_t first : {48, 48, 16, 16, 0, 0, 32, 32}) {
    CpuSet cpus;
    for (int64_t cpu = first; cpu < first + 16; ++cpu) {
      cpus.add(cpu);
      cpus.add(cpu + 64);
    }
    facts.gpu_cpus.push_back(cpus);
  }
  for (int64_t cpu = 0; cpu < 128; cpu += 8) facts.reserved_cpus.add(cpu);
  return facts;
}

}  // namespace

SiteFacts parse_facts(std::string_view config, std::string_view partitions, std::string_view nodes) {
  SiteFacts facts;
  facts.knows_all_partitions = true;
  facts.version = parse_version(setting_of(config, "SLURM_VERSION"));
  const auto enforces = setting_of(config, "EnforcePartLimits");
  facts.refuses_at_once = enforces == "ALL" || enforces == "ANY" || enforces == "YES";
  facts.max_array_size = number(setting_of(config, "MaxArraySize"));
  facts.shares_memory = setting_of(config, "SelectTypeParameters").find("MEMORY") != std::string_view::npos;
  const bool has_memory =
      setting_of(config, "DefMemPerNode") != "UNLIMITED" || setting_of(config, "DefMemPerCPU") != "";
  const auto defaults = setting_of(config, "JobDefaults");
  const auto is_default = [&](std::string_view partition_defaults, std::string_view name) {
    return defaults.find(name) != defaults.npos || partition_defaults.find(name) != partition_defaults.npos;
  };
  const bool is_linear = setting_of(config, "SelectType") == "select/linear";
  for (const auto line : lines_of(partitions)) {
    const auto name = field_of(line, "PartitionName");
    if (name.empty()) continue;
    auto& partition = facts.partitions[std::string(name)];
    const auto minutes = parse_minutes(field_of(line, "MaxTime"));
    if (minutes && *minutes >= 0) partition.max_minutes = minutes;
    partition.num_nodes = number(field_of(line, "TotalNodes"));
    partition.max_nodes = number(field_of(line, "MaxNodes"));
    const auto state = field_of(line, "State");
    if (state == "INACTIVE" || state == "DRAIN") partition.closed_state = state;
    partition.is_default = field_of(line, "Default") == "YES";
    const auto memory = field_of(line, "DefMemPerNode"), own_defaults = field_of(line, "JobDefaults");
    partition.has_default_memory =
        has_memory || (memory != "UNLIMITED" && !memory.empty()) || !field_of(line, "DefMemPerCPU").empty();
    partition.has_default_gpu_memory = is_default(own_defaults, "DefMemPerGPU");
    partition.is_whole_node = field_of(line, "OverSubscribe") == "EXCLUSIVE" || is_linear;
    partition.has_default_cpus = is_default(own_defaults, "DefCpuPerGPU");
  }
  for (const auto line : lines_of(nodes)) {
    const auto parts = split(line, '|');
    if (parts.size() < 4) continue;
    const auto found = facts.partitions.find(std::string(parts[0]));
    if (found == facts.partitions.end()) continue;
    raise(found->second.cpus_per_node, number(parts[1]));
    raise(found->second.memory_mib, number(parts[2]));
    if (parts.size() > 4) raise(found->second.threads_per_core, number(parts[4]));
    const auto gres = without_sockets(parts[3]);
    found->second.gpu_types.merge(gpu_types_of_gres(gres));
    raise(found->second.gpus_per_node, gpus_of_gres(gres).value_or(0));
    for (const auto& [type, count] : typed_gpus_of_gres(gres)) {
      auto& most = found->second.gpus_of_type[type];
      most = std::max(most, count);
    }
    for (const auto part : split(gres, ',')) {
      if (!part.empty()) found->second.gres_names.emplace(part.substr(0, part.find(':')));
    }
  }
  return facts;
}

std::optional<SiteFacts> read_facts(const Environment& environment) {
  try {
    const std::chrono::seconds limit{5};
    const auto config = ask({"scontrol", "show", "config"}, environment, limit);
    const auto partitions = ask({"scontrol", "show", "partition", "-o"}, environment, limit);
    const auto nodes = ask({"sinfo", "-h", "-N", "-o", "%R|%c|%m|%G|%Z"}, environment, limit);
    return parse_facts(config, partitions, nodes);
  } catch (const Error&) {  // without a cluster, a script can be checked all the same
    return std::nullopt;
  }
}

const SiteFacts* built_in_facts(std::string_view partition, std::string_view account) {
  static const SiteFacts kLumiG = make_lumi_g();
  if (!kLumiG.partitions.contains(std::string(partition))) return nullptr;
  // Other sites have partitions of the same names, but not standard-g. Accounts of LUMI are project_465000000.
  const bool is_lumi = account.starts_with("project_") || account.starts_with("<project");
  return partition == "standard-g" || is_lumi ? &kLumiG : nullptr;
}

}  // namespace yoke::slurm::check
