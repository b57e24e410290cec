// yoke/slurm/site/detect.h -- makes the description of a site from what Slurm and hwloc say. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/device/cpu/locality.h"
#include "yoke/slurm/site/site.h"

namespace yoke::slurm {

/// From `scontrol show config`.
struct ClusterConfig {
  std::string name;                ///< ClusterName; empty: not said.
  std::optional<Version> version;  ///< Of slurmctld.
  bool has_memory_limits = false;  ///< Memory is divided between jobs (CR_..._Memory).
};
ClusterConfig parse_config(std::string_view text);

/// From `scontrol show node --oneliner`.
struct NodeRecord {
  std::string name, gpu_type;                          ///< "a100"; empty: Slurm does not name the type.
  int64_t num_gpus = 0, num_cpus = 0, memory_mib = 0;  ///< Whole GPUs, or slices if it has no others; CPUs of jobs.
  int64_t num_slices = 0, slice_sevenths = 0;          ///< Of MIG, beside whole GPUs: how many, and how much of GPUs.
  std::vector<std::string> partitions;

  bool operator==(const NodeRecord&) const = default;
};
std::vector<NodeRecord> parse_nodes(std::string_view text);

/// From `scontrol show partition --oneliner`.
struct PartitionRecord {
  std::string name;
  bool is_default = false, has_whole_nodes = false;

  bool operator==(const PartitionRecord&) const = default;
};
std::vector<PartitionRecord> parse_partitions(std::string_view text);

/// "nvidia", "amd" or empty, by the name of a type of GPUs.
std::string vendor_of(std::string_view gpu_type);

/// Describes the nodes of `partition`; empty: the default partition's, if it has GPUs, else all nodes'. Of several
/// kinds of nodes, the one with the most GPUs in all is described, and `notes` names the others. Errors  kNotFound:
/// there is no such partition, or it has no nodes.
Site detect_site(const ClusterConfig& config, const std::vector<NodeRecord>& nodes,
                 const std::vector<PartitionRecord>& partitions, const std::string& partition,
                 std::vector<std::string>& notes);

/// Adds the CPUs near each GPU, from the topology of a node.
/// Errors  kInvalidArgument: the topology has another number of GPUs.
void add_topology(Site& site, device::CpuLocality cpus, const std::vector<device::DeviceLocality>& gpus);

}  // namespace yoke::slurm
