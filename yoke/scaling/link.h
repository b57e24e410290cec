// yoke/scaling/link.h -- how long devices communicate: the links of a site, and what a collective costs on them. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::scaling {

/// A level of a site's network: the links between the devices of a node, or those between nodes.
struct Level {
  /// The bus bandwidth of an all-reduce of this size, as nccl-tests defines it.
  struct Bandwidth {
    double bytes = 0;
    double bytes_per_second = 0;
  };
  double latency_seconds = 0;  ///< The latency (alpha) of one message between neighbours in a ring.
  /// The latency of one message in a tree; nullopt: as in a ring. A measurement does not say whether it used a ring or
  /// a tree, so each gets the latency that leads to the measured time.
  std::optional<double> tree_latency_seconds = std::nullopt;
  std::vector<Bandwidth>
      bandwidth;  ///< For sizes of the whole tensor, ascending; empty: only latency counts, and bytes take no time.
  /// How much an all-reduce delays what a device computes at the same time, as a share of the all-reduce's time;
  /// nullopt: not measured.
  std::optional<double> compute_delay = std::nullopt;
  std::string source;  ///< For the assumptions: "4.2 us and 230 GB/s, given".

  /// Between two sizes, the logarithm of the bandwidth is interpolated. Infinite if `bandwidth` is empty.
  double bytes_per_second(double bytes) const;
  /// One way through a tree of `num_members`.
  double tree_seconds(double num_members) const;
};

struct Topology {
  Level intra, inter;  ///< The bandwidth of `inter` is that of a whole node with all its network cards.
  int64_t devices_per_node = 8;
};

enum class Collective { kAllReduce, kReduceScatter, kAllGather };

/// The algorithm of a collective. Each one is the fastest for some sizes and numbers of devices.
enum class Algorithm { kRing, kTree, kHierarchical };

struct CollectiveCost {
  double seconds = 0;
  Algorithm algorithm = Algorithm::kRing;
};

/// The time of the fastest algorithm for the collective on `num_devices` devices. `bytes` is the size of the whole
/// tensor. The formulas are in docs/plan.md. Latencies of ring and tree are counted as NCCL does for its own choice
/// (src/graph/tuning.cc). A single device needs no time.
CollectiveCost collective_cost(Collective collective, double bytes, int64_t num_devices, const Topology& topology);

/// "LATENCY,BANDWIDTH" in microseconds and GB/s, such as "4,230".
/// Errors  kInvalidArgument, with the name of the option.
Level parse_level(std::string_view option, std::string_view text);

/// A measured all-reduce.
struct MeasuredSize {
  double bytes = 0, seconds = 0;
};

/// What `yoke bench all-reduce --json` printed.
struct MeasuredLink {
  int64_t num_ranks = 2;
  std::optional<int64_t> num_nodes;     ///< nullopt in old files, which do not contain it.
  std::vector<MeasuredSize> sizes;      ///< Ascending.
  double least_seconds = 0;             ///< The shortest time among all sizes, which is latency alone.
  std::optional<double> compute_delay;  ///< As in Level.
  std::string path;                     ///< For messages.
};

/// Errors  kDataLoss: it is something else; kInvalidArgument: it has fewer than two ranks, or only messages so small
///         that they do not show a bandwidth.
MeasuredLink parse_measured_link(const nlohmann::json& measured, const std::string& path);

/// The link between the ranks of a measurement on one node, or with one rank on each node.
Level level_of(const MeasuredLink& measured);

/// The links between nodes from a measurement with several ranks on each of its nodes: those by which collective_cost()
/// gives the measured times, beside the links `intra` inside the nodes. Without MeasuredLink::num_nodes, a node had
/// `devices_per_node`.
Level level_between_nodes(const MeasuredLink& measured, const Level& intra, int64_t devices_per_node);

}  // namespace yoke::scaling
