#include "yoke/scaling/link.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"

namespace yoke::scaling {
namespace {

Level link_of(double latency_us, double gb_per_second) {
  return {.latency_seconds = latency_us * 1e-6, .bandwidth = {{1, gb_per_second * 1e9}}};
}

double cost_of(Collective collective, double bytes, int64_t n, const Topology& topology) {
  return collective_cost(collective, bytes, n, topology).seconds;
}

// Oracle: without latency, no all-reduce is faster than 2 (n-1)/n of the bytes over the link (Patarasuk and Yuan 2009).
TEST(ScalingLink, ReachesTheBoundOfTheRingWithoutLatency) {
  const Topology one{.intra = link_of(0, 100), .inter = link_of(0, 100), .devices_per_node = 8};
  for (const int64_t n : {2, 3, 8}) {
    const auto count = static_cast<double>(n);
    EXPECT_DOUBLE_EQ(cost_of(Collective::kAllReduce, 1e9, n, one), 2 * (count - 1) / count * 0.01);
    EXPECT_DOUBLE_EQ(cost_of(Collective::kReduceScatter, 1e9, n, one), (count - 1) / count * 0.01);
    EXPECT_DOUBLE_EQ(cost_of(Collective::kAllGather, 1e9, n, one), (count - 1) / count * 0.01);
  }
  EXPECT_NEAR(cost_of(Collective::kAllReduce, 1e9, 4096, one), 2 * 4095.0 / 4096 * 0.01, 1e-12);
}

TEST(ScalingLink, AnAllReduceIsAReduceScatterAndAnAllGatherOnARing) {
  const Topology site{.intra = link_of(3, 200), .inter = link_of(9, 20), .devices_per_node = 4};
  for (const int64_t n : {2, 4, 8}) {
    const double parts =
        cost_of(Collective::kReduceScatter, 1e8, n, site) + cost_of(Collective::kAllGather, 1e8, n, site);
    EXPECT_NEAR(cost_of(Collective::kAllReduce, 1e8, n, site), parts, 1e-9);
  }
}

TEST(ScalingLink, SmallMessagesTakeATree) {
  const Topology site{.intra = link_of(3, 200), .inter = link_of(10, 20), .devices_per_node = 8};
  const auto small = collective_cost(Collective::kAllReduce, 8, 1024, site);
  EXPECT_EQ(small.algorithm, Algorithm::kTree);
  EXPECT_NEAR(small.seconds, 2 * (7 * 3e-6 + 7 * 10e-6), 1e-8);  // 7 hops in a node, 7 levels of 128 nodes
  EXPECT_EQ(collective_cost(Collective::kAllReduce, 1e9, 8, site).algorithm, Algorithm::kRing);
}

// Oracle: a reduce-scatter inside, an all-reduce between nodes of a part, an all-gather inside, each by its formula.
TEST(ScalingLink, TheHierarchyAddsItsPhases) {
  const Topology site{.intra = link_of(100, 1000), .inter = link_of(1, 10), .devices_per_node = 8};
  const auto cost = collective_cost(Collective::kReduceScatter, 8e6, 16, site);
  const double inside = 7 * 100e-6 + 7.0 / 8 * 8e6 / 1e12, between = 1e-6 + 0.5 * 8e6 / 10e9;
  EXPECT_EQ(cost.algorithm, Algorithm::kHierarchical);
  EXPECT_NEAR(cost.seconds, inside + between, 1e-12);
}

TEST(ScalingLink, ASingleDeviceSendsNothing) {
  const Topology site{.intra = link_of(3, 200), .inter = link_of(10, 20), .devices_per_node = 8};
  EXPECT_EQ(cost_of(Collective::kAllReduce, 1e9, 1, site), 0);
  EXPECT_EQ(cost_of(Collective::kAllReduce, 0, 8, site), 0);
}

TEST(ScalingLink, MoreDevicesAreNeverFaster) {
  const Topology site{.intra = link_of(3, 200), .inter = link_of(10, 20), .devices_per_node = 8};
  for (const double bytes : {1e3, 1e6, 1e9}) {
    double before = 0;
    for (int64_t n = 1; n <= 4096; n *= 2) {
      const double seconds = cost_of(Collective::kAllReduce, bytes, n, site);
      EXPECT_GE(seconds, before) << n << " devices, " << bytes << " bytes";
      before = seconds;
    }
  }
}

nlohmann::json bench_of(double latency, double bandwidth, int num_ranks) {
  nlohmann::json rows = nlohmann::json::array();
  for (const double bytes : {4.0, 1e4, 1e6, 1e8}) {
    const double seconds = 2 * (num_ranks - 1) * latency + 2.0 * (num_ranks - 1) / num_ranks * bytes / bandwidth;
    rows.push_back({{"bytes", bytes}, {"time_ms", 1e3 * seconds}});
  }
  return {{"num_ranks", num_ranks}, {"compute_delay_percent", 50}, {"results", rows}};
}

// Oracle: what a link of known figures would give in `yoke bench all-reduce` leads back to these figures.
TEST(ScalingLink, FindsTheFiguresOfAMeasuredLink) {
  for (const int num_ranks : {2, 4, 8}) {
    const auto level = level_of(parse_measured_link(bench_of(5e-6, 10e9, num_ranks), "link.json"));
    EXPECT_NEAR(level.latency_seconds, 5e-6, 1e-9);
    for (const double bytes : {1e6, 3e7, 1e8, 1e12}) EXPECT_NEAR(level.bytes_per_second(bytes), 10e9, 1e7) << bytes;
    EXPECT_EQ(level.compute_delay, 0.5);
  }
}

TEST(ScalingLink, ReproducesEachMeasuredSize) {
  const double times_ms[][2] = {{1e3, 0.1}, {1e5, 0.3}, {1e6, 4}, {1e7, 20}};  // the bandwidth falls and rises again
  auto results = nlohmann::json::array();
  for (const auto& [bytes, ms] : times_ms) results.push_back({{"bytes", bytes}, {"time_ms", ms}});
  for (const int num_ranks : {2, 3, 8, 12}) {
    const nlohmann::json measured = {{"num_ranks", num_ranks}, {"results", results}};
    const Topology site{
        .intra = level_of(parse_measured_link(measured, "link.json")), .inter = {}, .devices_per_node = num_ranks};
    for (const auto& [bytes, ms] : times_ms) {
      const double error = bytes == 1e3 ? 0.05 * ms / 1e3 : 1e-9;  // the smallest size gives the latency alone
      EXPECT_NEAR(cost_of(Collective::kAllReduce, bytes, num_ranks, site), ms / 1e3, error)
          << bytes << ' ' << num_ranks;
    }
  }
}

// Oracle: a measurement on several nodes leads back to its own times, whatever the links inside the nodes do.
TEST(ScalingLink, ReproducesAMeasurementBetweenNodes) {
  for (const auto& [ranks, nodes] : {std::pair{16, 2}, {16, 4}, {64, 8}, {6, 3}, {4, 4}}) {
    auto results = nlohmann::json::array();
    const double times_ms[][2] = {{1e3, 0.4}, {1e6, 1}, {25e6, 5.5}, {1e9, 200}};
    for (const auto& [bytes, ms] : times_ms) results.push_back({{"bytes", bytes}, {"time_ms", ms}});
    nlohmann::json measured = {{"num_ranks", ranks}, {"num_nodes", nodes}, {"results", results}};
    const auto link = parse_measured_link(measured, "link.json");
    const auto intra = link_of(4, 230);
    const Topology site{
        .intra = intra, .inter = level_between_nodes(link, intra, 8), .devices_per_node = ranks / nodes};
    for (const auto& [bytes, ms] : times_ms) {
      const double error = bytes == 1e3 ? 0.05 * ms / 1e3 : 1e-6 * ms;
      EXPECT_NEAR(cost_of(Collective::kAllReduce, bytes, ranks, site), ms / 1e3, error) << bytes << ' ' << ranks;
    }
    measured.erase("num_nodes");
    if (ranks / nodes == 8) {
      const auto unnamed = level_between_nodes(parse_measured_link(measured, "link.json"), intra, 8);
      EXPECT_DOUBLE_EQ(unnamed.bytes_per_second(1e9), site.inter.bytes_per_second(1e9));
    }
  }
  nlohmann::json one = bench_of(5e-6, 10e9, 8);
  one["num_nodes"] = 1;
  EXPECT_THROW(level_between_nodes(parse_measured_link(one, "link.json"), link_of(4, 230), 8), Error);
}

TEST(ScalingLink, TakesADelayOfComputingBetweenNothingAndTheWholeTime) {
  auto measured = bench_of(5e-6, 10e9, 2);
  for (const auto& [percent, share] : {std::pair{-3.0, 0.0}, {40.0, 0.4}, {130.0, 1.0}}) {
    measured["compute_delay_percent"] = percent;
    EXPECT_EQ(parse_measured_link(measured, "link.json").compute_delay, share);
  }
  measured.erase("compute_delay_percent");
  EXPECT_EQ(parse_measured_link(measured, "link.json").compute_delay, std::nullopt);
}

TEST(ScalingLink, RefusesOtherFiles) {
  for (const auto* text :
       {"{}", "[]", R"({"num_ranks":2,"results":[]})", R"({"num_ranks":2,"results":[{"bytes":4}]})",
        R"({"num_ranks":2,"results":[{"bytes":4,"time_ms":1}]})",
        R"({"num_ranks":1,"results":[{"bytes":4,"time_ms":1}]})",
        R"({"num_ranks":2,"results":[{"bytes":-4,"time_ms":1}]})", R"({"results":[3]})",
        R"({"num_ranks":1e18,"results":[{"bytes":4,"time_ms":1},{"bytes":4e6,"time_ms":9}]})",
        R"({"num_ranks":2.5,"results":[{"bytes":4,"time_ms":1},{"bytes":4e6,"time_ms":9}]})",
        R"({"num_ranks":2,"results":[{"bytes":1024,"time_ms":0.11},{"bytes":4096,"time_ms":0.1}]})",
        R"({"num_ranks":2,"results":[{"bytes":1024,"time_ms":0.1},{"bytes":4096,"time_ms":0.11}]})"}) {
    EXPECT_THROW(parse_measured_link(nlohmann::json::parse(text), "link.json"), Error) << text;
  }
  EXPECT_THROW(parse_level("--intra", "4"), Error);
  for (const auto* text : {"4,0", "nan,230", "4,nan", "4,inf", "1e308,1", "4,1e308", "4,1e-300", "-1,230"}) {
    EXPECT_THROW(parse_level("--intra", text), Error) << text;
  }
  EXPECT_THROW(parse_level("--intra", "-1,200"), Error);
  EXPECT_THROW(parse_level("--intra", "4,fast"), Error);
  EXPECT_DOUBLE_EQ(parse_level("--intra", "4,230").bytes_per_second(5), 230e9);
}

}  // namespace
}  // namespace yoke::scaling
