// yoke/slurm/job/samples.h -- what a job used on one node, as `yoke run` and `yoke slurm sample` write it into a small
// file. docs/slurm-report.md has the format. Pure.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <utility>

#include "yoke/device/usage_report.h"
#include "yoke/slurm/job/job.h"

namespace yoke::slurm {

struct DeviceSample {
  std::string id, uuid, name;
  double known_seconds = 0;  ///< The time for which the utilisation is known.
  std::optional<double> mean_percent;
  std::optional<int64_t> memory_peak_bytes, memory_total_bytes, mean_power_mw, energy_mj;

  bool operator==(const DeviceSample&) const = default;
};

/// One node during one call of `yoke run` or `yoke slurm sample`.
struct NodeSample {
  std::string cluster;  ///< SLURM_CLUSTER_NAME; empty if Slurm did not tell.
  int64_t job = 0;
  std::string step, host;
  int64_t restart = 0;  ///< SLURM_RESTART_COUNT.
  double begin = 0;     ///< Seconds since 1970.
  double seconds = 0;   ///< The length of the sampling.
  int64_t num_samples = 0;
  bool is_finished = false;   ///< Whether the sampling ended with the program.
  int64_t num_cpus = 0;       ///< That the job may use on this node.
  int64_t num_host_cpus = 0;  ///< Of the node.
  std::optional<double> cpu_seconds;
  std::optional<int64_t> memory_peak_bytes, memory_limit_bytes;
  std::optional<int64_t> memory_with_files_peak_bytes;  ///< With cached files; at any time, not only in samples.
  std::optional<int64_t> num_oom_kills;                 ///< Processes that were killed for want of memory.
  std::string source;  ///< Of CPU and memory: "cgroup" (of the whole job), "processes", or both.
  std::vector<DeviceSample> devices;

  bool operator==(const NodeSample&) const = default;
};

nlohmann::ordered_json to_json(const NodeSample& sample);
/// Parses a file. Returns nullopt if it is not such a file. Unknown keys are ignored. Files of other users must not be
/// given to this function.
std::optional<NodeSample> parse_sample(std::string_view text);

std::vector<DeviceSample> device_samples(const device::UsageReport& report);

/// The run of a job whose samples are wanted. An empty `cluster` and nullopt are not known.
struct SampledRun {
  std::string cluster;
  std::optional<Time> submitted;              ///< Or put back into the queue.
  std::optional<int64_t> restart;             ///< As NodeSample::restart.
  std::vector<std::pair<Time, Time>> others;  ///< From when to when other runs and other jobs with the number ran.
};
/// Removes the samples of other clusters, other runs and other jobs that had the number. Clocks of nodes may differ by
/// five minutes, as munge allows. Returns sentences about samples that are in doubt.
std::vector<std::string> keep_samples_of(const SampledRun& run, std::vector<NodeSample>& samples);

/// Several samplings of a node become one: means are weighted by time, and peaks are maxima. CPU time and energy add up
/// unless the samplings overlap: then both have seen the same, and the larger value counts. The result is in the order
/// of hosts. Of several restarts, only the last is kept.
std::vector<NodeSample> merged_by_host(std::vector<NodeSample> samples);

}  // namespace yoke::slurm
