// yoke/slurm/check/facts.h -- what rules know of a cluster: limits of partitions, CPUs near GPUs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/cpu_set.h"
#include "yoke/base/environment.h"
#include "yoke/slurm/words/version.h"

namespace yoke::slurm::check {

struct PartitionFacts {
  std::optional<int64_t> max_minutes;  ///< nullopt: no limit.
  std::optional<int64_t> num_nodes = {}, max_nodes = {};
  std::optional<int64_t> cpus_per_node = {}, memory_mib = {}, gpus_per_node = {};  ///< Of the largest node.
  std::set<std::string> gpu_types = {};              ///< "a100"; empty: not known, or GPUs without a type.
  std::map<std::string, int64_t> gpus_of_type = {};  ///< The most on a node; slices of MIG are types of their own.
  std::set<std::string> gres_names = {};             ///< Of all its nodes: "gpu", "nvme".
  std::string closed_state = {};                     ///< "INACTIVE" or "DRAIN": new jobs are refused; otherwise empty.
  bool is_default = false;
  bool has_default_memory = false;
  bool is_whole_node = false;           ///< Jobs get whole nodes.
  bool has_default_cpus = false;        ///< Jobs get CPUs for each GPU by default (DefCpuPerGPU).
  bool has_default_gpu_memory = false;  ///< Jobs get memory for each GPU by default (DefMemPerGPU).
  /// Of its nodes, the most; unset: not known.
  std::optional<int64_t> threads_per_core = std::nullopt;
};

struct SiteFacts {
  std::optional<Version> version;
  std::map<std::string, PartitionFacts> partitions;
  bool knows_all_partitions = false;
  std::optional<int64_t> max_array_size;  ///< MaxArraySize: indexes are below it.
  bool refuses_at_once = false;           ///< EnforcePartLimits: too much is refused; otherwise the job waits for ever.
  bool shares_memory = false;             ///< Memory is a resource that jobs share (CR_*_Memory).
  std::vector<CpuSet> gpu_cpus;           ///< For each GPU, in the order of local ranks, the CPUs of its NUMA node.
  CpuSet reserved_cpus;                   ///< That jobs do not get.
};

/// Asks scontrol and sinfo. nullopt: no Slurm is here, or it does not answer.
std::optional<SiteFacts> read_facts(const Environment& environment);

/// Reads what `scontrol show config`, `scontrol show partition -o` and `sinfo -h -N -o "%R|%c|%m|%G|%Z"` print. Pure.
SiteFacts parse_facts(std::string_view config, std::string_view partitions, std::string_view nodes);

/// What is built in about LUMI's GPU nodes. Null if the script is not for them: the partition has another name, or the
/// account is not one of LUMI's.
const SiteFacts* built_in_facts(std::string_view partition, std::string_view account);

}  // namespace yoke::slurm::check
