#include "yoke/scaling/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/quantity.h"
#include "yoke/base/text.h"

namespace yoke::scaling {
namespace {

/// A ring of a single level, all of whose n members send in each of its steps.
double ring_seconds(const Level& level, double num_rounds, double bytes, double n) {
  return num_rounds * ((n - 1) * level.latency_seconds + (n - 1) / n * bytes / level.bytes_per_second(bytes));
}

/// The sizes that take longer than latency alone, without duplicates. Only these tell the bandwidth.
std::vector<MeasuredSize> sizes_with_bandwidth(const MeasuredLink& measured) {
  std::vector<MeasuredSize> sizes;
  bool is_above_least = false;
  for (const auto& size : measured.sizes) {
    if (size.seconds == measured.least_seconds) {
      is_above_least = true;
      sizes.clear();  // smaller messages that took longer than this one were disturbed
    }
    if (!is_above_least || size.seconds - measured.least_seconds < 0.05 * size.seconds) continue;
    if (sizes.empty() || sizes.back().bytes != size.bytes) sizes.push_back(size);
  }
  return sizes;
}

std::string words_for(const Level& level) {
  if (level.bandwidth.empty()) return fmt::format("{:.3g} us", level.latency_seconds * 1e6);
  const auto& last = level.bandwidth.back();
  return fmt::format("{:.3g} us and {:.3g} GB/s", level.latency_seconds * 1e6, last.bytes_per_second / 1e9);
}

}  // namespace

double Level::bytes_per_second(double bytes) const {
  if (bandwidth.empty()) return std::numeric_limits<double>::infinity();
  if (bytes <= bandwidth.front().bytes) return bandwidth.front().bytes_per_second;
  for (size_t i = 1; i < bandwidth.size(); ++i) {
    const auto &low = bandwidth[i - 1], &high = bandwidth[i];
    if (bytes > high.bytes) continue;
    const double share = std::log(bytes / low.bytes) / std::log(high.bytes / low.bytes);
    return low.bytes_per_second * std::pow(high.bytes_per_second / low.bytes_per_second, share);
  }
  return bandwidth.back().bytes_per_second;
}

double Level::tree_seconds(double num_members) const {
  return std::ceil(std::log2(num_members)) * tree_latency_seconds.value_or(latency_seconds);
}

CollectiveCost collective_cost(Collective collective, double bytes, int64_t num_devices, const Topology& topology) {
  if (num_devices < 2 || bytes <= 0) return {};
  const auto n = static_cast<double>(num_devices);
  const double per_node = std::min(n, static_cast<double>(std::max<int64_t>(1, topology.devices_per_node)));
  const double num_nodes = std::ceil(n / per_node);
  const double rounds = collective == Collective::kAllReduce ? 2 : 1;
  const auto &intra = topology.intra, &inter = topology.inter;
  // Ring and tree send while they receive, so their slowest link limits them.
  double slowest = std::numeric_limits<double>::infinity();
  if (per_node > 1) slowest = std::min(slowest, intra.bytes_per_second(bytes));
  if (num_nodes > 1) slowest = std::min(slowest, inter.bytes_per_second(bytes));

  const double ring = rounds * ((n - num_nodes) * intra.latency_seconds + (num_nodes - 1) * inter.latency_seconds +
                                (n - 1) / n * bytes / slowest);
  CollectiveCost best{ring, Algorithm::kRing};
  const auto consider = [&](double seconds, Algorithm algorithm) {
    if (seconds < best.seconds) best = {seconds, algorithm};
  };
  if (collective == Collective::kAllReduce) {
    const double latency =
        num_nodes > 1 ? (per_node - 1) * intra.latency_seconds + inter.tree_seconds(num_nodes) : intra.tree_seconds(n);
    consider(2 * latency + 2 * bytes / slowest, Algorithm::kTree);
  }
  if (num_nodes > 1 && per_node > 1) {
    // Each device of a node communicates with one of each other node about its part; all of them share the network.
    const double between = ring_seconds(inter, rounds, bytes, num_nodes);
    double fastest_between = between;
    if (collective == Collective::kAllReduce) {
      fastest_between =
          std::min(between, 2 * inter.tree_seconds(num_nodes) + 2 * bytes / inter.bytes_per_second(bytes));
    }
    consider(ring_seconds(intra, rounds, bytes, per_node) + fastest_between, Algorithm::kHierarchical);
  }
  return best;
}

Level parse_level(std::string_view option, std::string_view text) {
  const auto comma = text.find(',');
  const auto latency = parse_real(text.substr(0, comma));
  const auto bandwidth = comma == text.npos ? std::nullopt : parse_real(text.substr(comma + 1));
  constexpr double kMost = 1e9, kLeast = 1e-6;  // a thousand seconds; an exabyte and a kilobyte a second
  if (!latency || !bandwidth || !(*latency >= 0) || !(*bandwidth >= kLeast) || *latency > kMost || *bandwidth > kMost) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "{} {}: give a file of `yoke bench all-reduce --json`, or microseconds (0 to 1e9) and GB/s (1e-6 to 1e9), "
        "such as 4,230",
        option, printable(text));
  }
  Level level{.latency_seconds = *latency * 1e-6, .bandwidth = {{1, *bandwidth * 1e9}}};
  level.source = words_for(level) + ", given";
  return level;
}

MeasuredLink parse_measured_link(const nlohmann::json& measured, const std::string& path) {
  const auto refuse = [&](const char* why) -> Error {
    return {ErrorCode::kDataLoss, "{}: {}; give what `yoke bench all-reduce --json` printed", printable(path), why};
  };
  const auto number = [&](const nlohmann::json& object, const char* member) {
    const auto found = object.find(member);
    if (found == object.end() || !found->is_number()) throw refuse("a figure is missing in it");
    return found->get<double>();
  };
  const auto whole_number = [&](const char* member) {
    const double value = number(measured, member);
    constexpr double kMost = 1 << 20;
    if (!(value >= 1 && value <= kMost && value == std::floor(value)))
      throw refuse("it has an impossible number of ranks");
    return static_cast<int64_t>(value);
  };
  if (measured.is_discarded()) throw refuse("it is not complete JSON");
  if (!measured.is_object() || !measured.contains("results") || !measured["results"].is_array() ||
      measured["results"].empty()) {
    throw refuse("it has no results of all-reduces");
  }
  MeasuredLink link{.num_ranks = whole_number("num_ranks"), .path = printable(path)};
  if (link.num_ranks < 2) {
    throw Error(ErrorCode::kInvalidArgument, "{}: an all-reduce of one rank uses no link", printable(path));
  }
  if (measured.contains("num_nodes")) link.num_nodes = whole_number("num_nodes");
  for (const auto& row : measured["results"]) {
    if (!row.is_object()) throw refuse("a result is not an object");
    link.sizes.push_back({number(row, "bytes"), number(row, "time_ms") / 1e3});
    if (!(link.sizes.back().bytes > 0) || !(link.sizes.back().seconds > 0)) {
      throw refuse("a size or a time is not above zero");
    }
  }
  std::ranges::sort(link.sizes, {}, &MeasuredSize::bytes);
  link.least_seconds = std::ranges::min(link.sizes, {}, &MeasuredSize::seconds).seconds;
  if (link.sizes.back().seconds < 1.5 * link.least_seconds) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "{}: its largest message, {}, takes hardly longer than the fastest one, which does not tell latency from "
        "bandwidth; measure larger ones too",
        printable(path), format_bytes(std::llround(link.sizes.back().bytes)));
  }
  if (measured.contains("compute_delay_percent")) {
    link.compute_delay = std::clamp(number(measured, "compute_delay_percent") / 100, 0.0, 1.0);
  }
  return link;
}

Level level_of(const MeasuredLink& measured) {
  const auto n = static_cast<double>(measured.num_ranks);
  const double least = measured.least_seconds;
  Level level{.latency_seconds = least / (2 * (n - 1)),
              .tree_latency_seconds = least / (2 * std::ceil(std::log2(n))),
              .compute_delay = measured.compute_delay};
  for (const auto& [bytes, seconds] : sizes_with_bandwidth(measured)) {
    level.bandwidth.push_back({bytes, 2 * (n - 1) / n * bytes / (seconds - least)});
  }
  level.source = fmt::format("{}, measured with {} ranks ({})", words_for(level), measured.num_ranks, measured.path);
  return level;
}

Level level_between_nodes(const MeasuredLink& measured, const Level& intra, int64_t devices_per_node) {
  const int64_t ranks = measured.num_ranks;
  const int64_t per_node = measured.num_nodes         ? (ranks + *measured.num_nodes - 1) / *measured.num_nodes
                           : ranks > devices_per_node ? devices_per_node
                                                      : 1;
  if (per_node == 1) return level_of(measured);
  const auto n = static_cast<double>(ranks), g = static_cast<double>(per_node), m = std::ceil(n / g);
  if (m < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                "{}: its {} ranks were on one node, so it does not show links between nodes", measured.path, ranks);
  }
  // The hierarchy has the least latency. Its ring and its tree each get the latency that leads to the measured time, as
  // in level_of().
  const double between = std::max(0.0, measured.least_seconds / 2 - (g - 1) * intra.latency_seconds);
  Level level{.latency_seconds = between / (m - 1),
              .tree_latency_seconds = between / std::ceil(std::log2(m)),
              .compute_delay = measured.compute_delay};
  for (const auto& [bytes, seconds] : sizes_with_bandwidth(measured)) {
    Topology topology{.intra = intra, .inter = level, .devices_per_node = per_node};
    const auto is_slower = [&](double exponent) {
      topology.inter.bandwidth = {{1, std::pow(10, exponent)}};
      return collective_cost(Collective::kAllReduce, bytes, ranks, topology).seconds > seconds;
    };
    double low = 0, high = 18;      // bytes per second, as powers of ten
    if (is_slower(high)) continue;  // the links inside the nodes explain all of the time
    for (int i = 0; i < 60; ++i) (is_slower((low + high) / 2) ? low : high) = (low + high) / 2;
    level.bandwidth.push_back({bytes, std::pow(10, high)});
  }
  level.source =
      fmt::format("{}, measured with {} ranks on {:.0f} nodes ({})", words_for(level), ranks, m, measured.path);
  return level;
}

}  // namespace yoke::scaling
