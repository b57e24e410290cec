// yoke/slurm/site/site.h -- what a batch script must know of a cluster, as data: a TOML file for each site.
// docs/slurm.md has the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/base/cpu_set.h"
#include "yoke/slurm/words/version.h"

namespace yoke::slurm {

/// A GPU of a node, in the order in which Slurm and the GPU runtime number them, and the CPUs that its rank gets.
struct GpuPlace {
  CpuSet cpus;  ///< Only CPUs that a job can have; empty: not known.
  std::optional<int64_t> numa_node = {};
  std::string pci;  ///< "c1:00.0"; empty: not known.

  bool operator==(const GpuPlace&) const = default;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

struct Site {
  std::string name, summary;
  std::vector<std::string> sources;                ///< Where the facts were published.
  std::string checked;                             ///< How somebody has checked this file on the cluster.
  std::vector<std::string> clusters, hosts;        ///< Patterns with * and ?: ClusterName of Slurm, names of hosts.
  std::optional<Version> version;                  ///< Of its Slurm, for scripts that are written elsewhere.
  std::string partition;                           ///< For jobs that name none; empty: Slurm's default.
  std::vector<std::string> whole_node_partitions;  ///< Their jobs have whole nodes without asking. "*": all do.
  bool needs_account = false;
  std::vector<std::string> options;  ///< Options of sbatch for every job: "--hint=nomultithread".

  int64_t num_gpus = 0;                           ///< Of a node.
  std::string gpu_type;                           ///< Jobs ask for GPUs by it, since nodes have others or slices too.
  std::string vendor;                             ///< "nvidia", "amd" or empty.
  std::optional<int64_t> num_cpus, cpus_per_gpu;  ///< As Slurm counts CPUs; those that a job can have.
  std::string memory_per_gpu;                     ///< As --mem-per-gpu takes it: "60G"; empty: Slurm's default.
  std::vector<GpuPlace> gpus;                     ///< Empty, or one for each GPU.

  std::string launcher;  ///< "srun" or "yoke"; empty: srun.
  std::string nccl_interfaces, gloo_interface;
  std::string master_suffix;         ///< Is added to the first node's name in MASTER_ADDR: "i" at JSC.
  std::vector<std::string> modules;  ///< Words of `module` for every job: "load LUMI".
  Variables variables;               ///< Exported by every job. Values may have $NAME.

  std::string cache_folder;                  ///< Below it, each job has a folder on each node. May have $NAME.
  std::vector<std::string> cache_variables;  ///< Each names a folder below that one.

  std::vector<std::string> container;          ///< Command line up to the image: {"singularity", "run"}.
  std::string container_overlay;               ///< Words for an overlay; {} is the file: "-B {}:/x:image-src=/".
  std::vector<std::string> container_modules;  ///< Words of `module`, before a container is started.

  bool operator==(const Site&) const = default;

  /// Whether the file says which CPUs belong to each GPU.
  bool has_masks() const { return !gpus.empty() && !gpus.front().cpus.empty(); }
};

/// Whether `words` are plain words for the command module, without what a shell interprets.
bool is_module_text(std::string_view words);

/// Parses a site's file. `name` is for messages. Errors  kDataLoss with file and line: it is not TOML, a key is not
/// known or has a wrong value, or values contradict each other.
Site parse_site(std::string_view text, const std::string& name);

/// Returns the text of a site's file. parse_site() reads it again.
std::string to_toml(const Site& site);

/// Returns whether `text` matches a pattern in which * stands for any characters and ? for one.
bool matches(std::string_view pattern, std::string_view text);
bool matches_any(const std::vector<std::string>& patterns, std::string_view text);

/// Returns the first site of which the pattern of a cluster matches `cluster`; then the first one of which the pattern
/// of a host matches `host`; null if none does. `cluster` is empty where Slurm does not answer. If it does, hosts do
/// not count for a site that names clusters: many Crays have a uan01.
const Site* choose_site(const std::vector<Site>& sites, std::string_view cluster, std::string_view host);

}  // namespace yoke::slurm
