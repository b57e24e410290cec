// yoke/slurm/words/request.h -- what options ask Slurm for, as numbers. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/slurm/words/options.h"

namespace yoke::slurm::check {

struct NodeRange {
  int64_t min = 0, max = 0;
  bool operator==(const NodeRange&) const = default;
};

/// Each returns nullopt for a text that sbatch refuses.
std::optional<int64_t> parse_count(std::string_view text);       ///< "4"; not 0, not negative
std::optional<NodeRange> parse_nodes(std::string_view text);     ///< "2", "2-4", "1k"
std::optional<int64_t> parse_minutes(std::string_view text);     ///< "30", "10:00", "1-12"; -1 for UNLIMITED
std::optional<int64_t> parse_mebibytes(std::string_view text);   ///< "16G", "500", "0"
std::optional<int64_t> parse_gpus(std::string_view text);        ///< "4", "a100:4", "a100:2,v100:1"
std::optional<int64_t> gpus_of_gres(std::string_view text);      ///< "gpu:a100:4,shard:2"; nullopt: no GPUs in it
std::set<std::string> gpu_types_of_gres(std::string_view text);  ///< "gpu:a100:4,nvme:1": a100
/// "gpu:a100:4(S:0-1),gpu:a100_1g.5gb:7": 4 of a100, and 7 of a100_1g.5gb. Entries without a type are left out.
std::map<std::string, int64_t> typed_gpus_of_gres(std::string_view text);
std::optional<int64_t> largest_index(std::string_view text);  ///< "0-9:2%4": 9
bool is_signal_value(std::string_view text);                  ///< "B:USR1@90"
bool is_array_value(std::string_view text);                   ///< "0-9:2%4"

/// The options of one job or step: of equal options the last one counts, as with sbatch.
class Request {
 public:
  Request() = default;
  explicit Request(const ParsedOptions& options);

  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Whether one of several options is given. Spaces separate their names.
  bool has_any(std::string_view names) const;
  /// Null if the option is not given.
  const GivenOption* find(std::string_view name) const;
  /// The line of the last one of these options; 0 if none is given.
  int64_t line_of(std::string_view names) const;
  /// The value if it is known; otherwise empty.
  std::string value(std::string_view name) const;
  /// The number if it is given and known.
  std::optional<int64_t> count(std::string_view name) const;
  std::optional<NodeRange> node_range() const;
  /// The number of nodes, if it is fixed.
  std::optional<int64_t> nodes() const;
  std::optional<int64_t> gpus(std::string_view name) const;    ///< Of --gpus, --gpus-per-node, ...
  std::optional<int64_t> gpus_per_node() const;                ///< By --gpus-per-node or --gres.
  std::map<std::string, int64_t> typed_gpus_per_node() const;  ///< Those that are asked for by type, as above.
  std::optional<int64_t> minutes() const;
  std::set<std::string> gpu_types() const;  ///< That are asked for by name.
  bool asks_for_gpus() const;
  /// Whether an option of sockets, cores or threads makes sbatch count the tasks of --nodes: --threads-per-core,
  /// --hint.
  bool counts_tasks_by_cores() const;
  bool has_unknown() const { return options_.has_unknown; }

  const ParsedOptions& options() const { return options_; }

 private:
  std::string_view name_at(size_t i) const;

  ParsedOptions options_;
  std::vector<size_t> last_;  ///< The index in `options_.given` of the last one of each option.
};

/// What is known about the tasks of a job, or of a step within a job.
struct Layout {
  std::optional<int64_t> nodes = {}, ntasks = {}, ntasks_per_node = {}, cpus_per_task = {}, gpus_per_node = {};
};
Layout layout_of(const Request& job);
Layout layout_of(const Request& step, const Layout& job);

}  // namespace yoke::slurm::check
