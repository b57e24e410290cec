#include "yoke/slurm/site/detect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/launch/plan/bind.h"
#include "yoke/slurm/words/programs.h"

namespace yoke::slurm {
namespace {

int64_t number_of_key(std::string_view line, std::string_view key) {
  return parse_int(field_of(line, key)).value_or(0);
}

/// The sevenths of a GPU that a type of MIG slices has: 2 of "nvidia_b200_2g.45gb", "2g.45gb" and "1c.2g.20gb"; 0 for
/// a whole GPU. Source  NVIDIA's names of MIG profiles, which NVML's plugin of Slurm appends to the type.
int64_t sevenths_of(std::string_view type) {
  for (auto at = type.find("g."); at != type.npos; at = type.find("g.", at + 1)) {
    auto begin = at, end = at + 2;
    while (begin > 0 && is_digit(type[begin - 1])) --begin;
    while (end < type.size() && is_digit(type[end])) ++end;
    if (begin < at && end > at + 2 && type.substr(end).starts_with("gb")) {
      return parse_int(type.substr(begin, at - begin)).value_or(1);
    }
  }
  return 0;
}

/// "gpu:a100:4(S:0-1),gpu:t4:1" has 5 GPUs; the type is that of the first. MPS and shards of GPUs are not GPUs. Slices
/// of MIG are counted for themselves, unless the node has nothing else.
void read_gres(std::string_view gres, NodeRecord& node) {
  const auto text = without_sockets(gres);
  std::string slice_type;
  for (const auto entry : split(text, ',')) {
    const auto parts = split(entry, ':');
    if (parts.empty() || parts[0] != "gpu") continue;
    const auto count = (parts.size() == 1 ? std::optional<int64_t>(1) : parse_int(parts.back())).value_or(1);
    const std::string_view type = parts.size() == 3 ? parts[1] : std::string_view();
    if (const auto sevenths = sevenths_of(type); sevenths > 0) {
      node.num_slices += count;
      node.slice_sevenths += count * sevenths;
      if (slice_type.empty()) slice_type = type;
      continue;
    }
    node.num_gpus += count;
    if (node.gpu_type.empty()) node.gpu_type = type;
  }
  if (node.num_gpus > 0 || node.num_slices == 0) return;
  node.num_gpus = std::exchange(node.num_slices, 0);
  node.slice_sevenths = 0;
  node.gpu_type = slice_type;
}

}  // namespace

ClusterConfig parse_config(std::string_view text) {
  return {.name = std::string(setting_of(text, "ClusterName")),
          .version = parse_version(setting_of(text, "SLURM_VERSION")),
          .has_memory_limits = setting_of(text, "SelectTypeParameters").find("MEMORY") != text.npos};
}

std::vector<NodeRecord> parse_nodes(std::string_view text) {
  std::vector<NodeRecord> nodes;
  for (const auto line : lines_of(text)) {
    NodeRecord node{.name = std::string(field_of(line, "NodeName")), .gpu_type = "", .partitions = {}};
    if (node.name.empty()) continue;
    read_gres(field_of(line, "Gres"), node);
    const auto usable = number_of_key(line, "CPUEfctv");  // without CPUs that slurmd or the system keep; since 22.05
    node.num_cpus = usable > 0 ? usable : number_of_key(line, "CPUTot");
    node.memory_mib = number_of_key(line, "RealMemory");
    for (const auto partition : split(field_of(line, "Partitions"), ',')) node.partitions.emplace_back(partition);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<PartitionRecord> parse_partitions(std::string_view text) {
  std::vector<PartitionRecord> partitions;
  for (const auto line : lines_of(text)) {
    PartitionRecord partition{.name = std::string(field_of(line, "PartitionName")),
                              .is_default = field_of(line, "Default") == "YES",
                              .has_whole_nodes = field_of(line, "OverSubscribe") == "EXCLUSIVE"};
    if (!partition.name.empty()) partitions.push_back(std::move(partition));
  }
  return partitions;
}

std::string vendor_of(std::string_view gpu_type) {
  const auto type = lower_case(gpu_type);
  const auto has = [&](std::string_view part) { return type.find(part) != type.npos; };
  const bool is_mi = type.size() > 2 && type.starts_with("mi") && is_digit(type[2]);  // not "mig-1g.10gb"
  if (is_mi || has("instinct") || has("amd") || has("gfx") || has("radeon")) return "amd";
  for (const auto part :
       {"a100", "h100", "h200", "gh200", "b200", "gb200",  "v100",   "p100",  "a30",   "a40",   "a10",   "a2",
        "l4",   "l40",  "t4",   "rtx",   "gtx",  "quadro", "nvidia", "tesla", "a6000", "a5000", "titan", "k80"}) {
    if (has(part)) return "nvidia";
  }
  return "";
}

Site detect_site(const ClusterConfig& config, const std::vector<NodeRecord>& nodes,
                 const std::vector<PartitionRecord>& partitions, const std::string& partition,
                 std::vector<std::string>& notes) {
  auto chosen = partition;
  const auto in = [](const NodeRecord& node, const std::string& name) {
    return name.empty() || std::ranges::find(node.partitions, name) != node.partitions.end();
  };
  if (chosen.empty()) {
    const auto found = std::ranges::find_if(partitions, &PartitionRecord::is_default);
    const auto has_gpus = [&](const NodeRecord& node) {
      return node.num_gpus > 0 && found != partitions.end() && in(node, found->name);
    };
    if (std::ranges::any_of(nodes, has_gpus)) chosen = found->name;
  } else if (std::ranges::find(partitions, chosen, &PartitionRecord::name) == partitions.end()) {
    std::vector<std::string> names;
    for (const auto& one : partitions) names.push_back(one.name);
    throw Error(ErrorCode::kNotFound, "there is no partition {} here; there are: {}", chosen, fmt::join(names, ", "));
  }
  using Shape = std::tuple<int64_t, int64_t, int64_t, std::string, int64_t>;  // GPUs, CPUs, memory, type, slices
  std::map<Shape, std::vector<const NodeRecord*>> shapes;
  for (const auto& node : nodes) {
    if (!in(node, chosen)) continue;
    shapes[{node.num_gpus, node.num_cpus, node.memory_mib, node.gpu_type, node.num_slices}].push_back(&node);
  }
  if (shapes.empty())
    throw Error(ErrorCode::kNotFound, "Slurm lists no nodes{}", chosen.empty() ? "" : " in " + chosen);
  const auto best = std::ranges::max_element(shapes, {}, [](const auto& shape) {
    const auto count = static_cast<int64_t>(shape.second.size());
    return std::pair(std::get<0>(shape.first) * count, count);
  });
  for (const auto& [shape, members] : shapes) {
    if (&shape == &best->first) continue;
    notes.push_back(fmt::format("{} nodes are different: {} GPUs{}, {} CPUs, {} MiB ({}, ...)", members.size(),
                                std::get<0>(shape), std::get<3>(shape).empty() ? "" : " of type " + std::get<3>(shape),
                                std::get<1>(shape), std::get<2>(shape), members.front()->name));
  }
  const auto& node = *best->second.front();
  Site site{.name = config.name.empty() ? "detected" : config.name, .summary = "", .sources = {}, .checked = ""};
  if (!partition.empty()) site.name += '-' + partition;
  site.summary = fmt::format("{} nodes with {} GPUs{}", best->second.size(), node.num_gpus,
                             node.gpu_type.empty() ? "" : " of type " + node.gpu_type);
  site.checked = "detected from what Slurm says";
  if (!config.name.empty()) site.clusters = {config.name};
  site.version = config.version;
  site.partition = partition;
  for (const auto& one : partitions) {
    if (one.has_whole_nodes) site.whole_node_partitions.push_back(one.name);
  }
  site.num_gpus = node.num_gpus;
  site.vendor = vendor_of(node.gpu_type);
  if (node.num_slices > 0) {
    site.gpu_type = node.gpu_type;
    notes.push_back(fmt::format("nodes also have {} slices of GPUs (MIG), which are not counted; {}", node.num_slices,
                                site.gpu_type.empty()
                                    ? "Slurm does not name the type of whole ones, so jobs may get slices instead"
                                    : fmt::format("jobs ask for whole ones as gpu:{}", site.gpu_type)));
  }
  site.num_cpus = node.num_cpus;
  if (node.num_gpus > 0) {
    // Slices share the CPUs and the memory of the node, as parts of the GPUs that they are cut of.
    const auto num_physical = node.num_gpus + (node.slice_sevenths + 6) / 7;
    site.cpus_per_gpu = std::max<int64_t>(node.num_cpus / num_physical, 1);
    const auto mib = node.memory_mib / num_physical * 95 / 100;
    constexpr int64_t kRoundedMib = 16 * 1024;  // whole GiB of a smaller amount would leave much of it unused
    if (config.has_memory_limits && mib > 0) {
      site.memory_per_gpu = mib < kRoundedMib ? fmt::format("{}M", mib) : fmt::format("{}G", mib / 1024);
    }
  }
  if (site.vendor == "amd") {
    site.cache_folder = "/tmp";
    site.cache_variables = {"MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"};
  }
  return site;
}

void add_topology(Site& site, device::CpuLocality cpus, const std::vector<device::DeviceLocality>& gpus) {
  if (site.num_gpus == 0) site.num_gpus = static_cast<int64_t>(gpus.size());
  if (site.num_gpus != static_cast<int64_t>(gpus.size())) {
    throw Error(ErrorCode::kInvalidArgument,
                "the topology has {} GPUs, and Slurm's nodes have {}: take it on a compute node, outside of a step "
                "that has a part of the GPUs",
                gpus.size(), site.num_gpus);
  }
  const std::vector<std::optional<device::DeviceLocality>> devices(gpus.begin(), gpus.end());
  const auto binding = launch::plan_binding({}, cpus, devices);
  site.gpus.clear();
  for (size_t i = 0; i < gpus.size(); ++i) {
    GpuPlace place{.cpus = binding.ranks.at(i).cpus, .numa_node = {}, .pci = gpus[i].pci_bus_id};
    if (place.pci.starts_with("0000:")) place.pci = place.pci.substr(5);
    for (const auto& node : cpus.nodes) {
      if (place.cpus.is_subset_of(node.cpus)) place.numa_node = node.number;
    }
    site.gpus.push_back(std::move(place));
  }
  if (!site.num_cpus) site.num_cpus = cpus.allowed.size();
  if (!site.cpus_per_gpu && !gpus.empty()) {
    site.cpus_per_gpu = std::max<int64_t>(*site.num_cpus / static_cast<int64_t>(gpus.size()), 1);
  }
}

}  // namespace yoke::slurm
