#include "yoke/scaling/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "yoke/scaling/input.h"

namespace yoke::scaling {
namespace {

PlanOptions options_for(std::vector<Strategy> strategies, int64_t max_devices) {
  const Level level{.latency_seconds = 5e-6, .bandwidth = {{1, 10e9}}, .source = "5 us and 10 GB/s, given"};
  PlanOptions options{.strategies = std::move(strategies), .max_devices = max_devices};
  options.topology = {.intra = level, .inter = level, .devices_per_node = 8};
  options.memory.num_parameters = 25'000'000;
  return options;
}

Workload given_workload(double step_seconds, double num_parameters, double optimizer_share = 0) {
  PlanOptions ignored;
  return input_of({.step_seconds = step_seconds, .num_parameters = num_parameters, .optimizer_share = optimizer_share},
                  ignored)
      .workload;
}

Workload workload() { return given_workload(0.1, 25'000'000, 0.05); }

TEST(ScalingPlan, PredictsPowersOfTwoAndTheLargest) {
  const auto plan = make_plan(workload(), {}, options_for({Strategy::kDdp}, 24));
  std::vector<int64_t> counts;
  for (const auto& one : plan.predictions) counts.push_back(one.num_devices);
  EXPECT_EQ(counts, (std::vector<int64_t>{1, 2, 4, 8, 16, 24}));
  EXPECT_EQ(make_plan(workload(), {}, options_for({Strategy::kDdp}, 1)).predictions.size(), 1U);
}

// Oracle: for the same samples, GPU-hours are those of one device divided by the efficiency.
TEST(ScalingPlan, GpuHoursAndEfficiencyAgree) {
  for (const bool divides_batch : {false, true}) {
    auto options = options_for({Strategy::kDdp, Strategy::kZero1, Strategy::kFsdp}, 4096);
    options.num_steps = 36'000;
    options.divides_batch = divides_batch;
    const auto plan = make_plan(workload(), {}, options);
    ASSERT_EQ(plan.predictions.size(), 39U);
    for (const auto& one : plan.predictions) EXPECT_NEAR(one.gpu_hours * one.efficiency, 1.0, 1e-9);
    EXPECT_DOUBLE_EQ(plan.predictions.front().efficiency, 1);
    EXPECT_LT(plan.predictions[12].efficiency, 1);
  }
}

TEST(ScalingPlan, DividingTheBatchScalesWorse) {
  auto options = options_for({Strategy::kDdp}, 64);
  const auto weak = make_plan(workload(), {}, options);
  options.divides_batch = true;
  const auto strong = make_plan(workload(), {}, options);
  for (size_t i = 1; i < weak.predictions.size(); ++i) {
    EXPECT_LT(strong.predictions[i].efficiency, weak.predictions[i].efficiency);
    EXPECT_LE(strong.predictions[i].step.step_seconds, weak.predictions[i].step.step_seconds);
  }
}

TEST(ScalingPlan, OnlyAMeasuredStepIsCalledMeasured) {
  const auto options = options_for({Strategy::kDdp}, 4);
  const auto given = to_json(make_plan(workload(), {}, options));
  for (const auto& row : given["predictions"]) {
    EXPECT_EQ(row["label"], row["num_devices"] == 1 ? "given" : "predicted");
    EXPECT_EQ(row["measured"], nlohmann::ordered_json::array());
  }
  auto work = workload();
  const auto measured = to_json(make_plan(work, {.is_step_measured = true}, options));
  EXPECT_EQ(measured["predictions"][0]["label"], "measured");
  EXPECT_EQ(measured["predictions"][0]["measured"], nlohmann::ordered_json{"step_seconds"});
  EXPECT_EQ(measured["predictions"][1]["label"], "predicted");
  EXPECT_EQ(measured["predictions"][1]["measured"], nlohmann::ordered_json::array());
  work.loader_seconds = 2 * work.step_seconds();
  const auto waiting = to_json(make_plan(work, {.is_step_measured = true}, options));
  EXPECT_EQ(waiting["predictions"][0]["label"], "predicted") << "the loader makes it longer than it was";
}

TEST(ScalingPlan, JsonHasTheContractsMembers) {
  const auto json = to_json(make_plan(workload(), {}, options_for({Strategy::kDdp, Strategy::kFsdp}, 4096)));
  ASSERT_EQ(json["predictions"].size(), 26U);
  for (const auto& row : json["predictions"]) {
    for (const auto* member : {"num_devices", "step_seconds", "efficiency", "gpu_hours", "memory_bytes"}) {
      ASSERT_TRUE(row[member].is_number()) << member;
      EXPECT_GT(row[member].get<double>(), 0) << member;
    }
  }
  EXPECT_EQ(json["predictions"][12]["num_devices"], 4096);
  EXPECT_EQ(json["predictions"][13]["strategy"], "fsdp");
  ASSERT_GT(json["assumptions"].size(), 5U);
  for (const auto& sentence : json["assumptions"]) EXPECT_EQ(sentence.get<std::string>().back(), '.') << sentence;
}

TEST(ScalingPlan, NamesTheAssumptionsThatApply) {
  const auto has = [](const Plan& plan, const char* part) {
    return std::ranges::any_of(plan.assumptions, [&](const auto& text) { return text.find(part) != text.npos; });
  };
  auto options = options_for({Strategy::kDdp}, 8);
  const auto small = make_plan(workload(), {}, options);
  EXPECT_TRUE(has(small, "5 us and 10 GB/s, given"));
  EXPECT_FALSE(has(small, "Between nodes"));
  EXPECT_FALSE(has(small, "FSDP"));
  EXPECT_TRUE(has(small, "Inside a node of 8"));
  EXPECT_TRUE(has(small, "activations are not included"));
  options.strategies = {Strategy::kFsdp};
  options.max_devices = 16;
  options.model.contention = 0.3;
  options.model.neighbour_slowdown = 1.5;
  const auto large = make_plan(workload(), {.is_slowdown_measured = true}, options);
  EXPECT_TRUE(has(large, "Between nodes"));
  EXPECT_TRUE(has(large, "FSDP has 24 units, the largest of 4.0 MiB"));
  EXPECT_TRUE(has(large, "30 % slower"));
  EXPECT_TRUE(has(large, "1.5 times as long if other devices compute too, on the slowest of them (measured)"));
  options.topology.devices_per_node = 1;
  options.model.neighbour_slowdown = 1;
  const auto single = make_plan(workload(), {.has_device = true, .is_slowdown_measured = true}, options);
  EXPECT_FALSE(has(single, "Inside a node"));
  EXPECT_TRUE(has(single, "take the same time for a step (measured)"));
  EXPECT_TRUE(has(single, "Backward is two thirds of the step without the optimizer"));
}

TEST(ScalingPlan, TheSentenceEndsAtTheFirstNumberOfDevicesBelow) {
  const auto sentence_for = [](std::vector<double> efficiencies) {
    Plan plan;
    int64_t n = 1;
    for (const double one : efficiencies) plan.predictions.push_back({.num_devices = n++, .efficiency = one});
    return to_sentence(plan);
  };
  EXPECT_EQ(sentence_for({1}), "");
  EXPECT_EQ(sentence_for({1, 0.95}),
            "DDP: 2 devices are predicted to reach 95.0 % of the throughput of as many single devices.\n");
  const auto reaches = [&](const std::vector<double>& efficiencies, const char* what) {
    EXPECT_TRUE(sentence_for(efficiencies).ends_with(what)) << sentence_for(efficiencies);
  };
  reaches({1, 0.95, 0.8, 0.92}, "; at least 90 % is reached up to 2.\n");
  reaches({1, 0.95, 0.8}, "; at least 90 % is reached up to 2.\n");
  reaches({1, 0.8, 0.95}, "; 90 % is not reached.\n");
}

// What is predicted for one size of buckets was called the most that devices reach, and another size refuted it.
TEST(ScalingPlan, NamesABetterSizeOfBuckets) {
  auto options = options_for({Strategy::kZero1, Strategy::kDdp}, 1024);
  options.topology.intra.latency_seconds = options.topology.inter.latency_seconds = 50e-6;
  const auto plan = make_plan(workload(), {}, options);
  ASSERT_FALSE(plan.better_sizes.empty());
  const auto better = plan.better_sizes.front();
  EXPECT_EQ(better.strategy, Strategy::kZero1);
  EXPECT_NE(to_sentence(plan).find("; with --bucket " + std::to_string(better.size) + ", they reach"),
            std::string::npos);
  options.model.bucket_bytes = better.size << 20;
  const auto again = make_plan(workload(), {}, options);
  const auto reached = again.predictions[again.predictions.size() / 2 - 1];
  EXPECT_EQ(reached.num_devices, 1024);
  EXPECT_NEAR(reached.efficiency, better.efficiency, 1e-9);
  EXPECT_TRUE(again.better_sizes.empty() || again.better_sizes.front().strategy != Strategy::kZero1);
}

TEST(ScalingPlan, WritesNumbersWithoutExponents) {
  auto options = options_for({Strategy::kDdp}, 2);
  for (const auto& [num_steps, hours] :
       {std::pair{100'000.0, "2.78"}, {100e6, "2778"}, {3'600'000.0, "100"}, {1e9, "27778"}}) {
    options.num_steps = num_steps;
    const auto work = given_workload(0.1, 1);
    EXPECT_EQ(to_table(make_plan(work, {}, options)).rows[0][5], hours);
  }
  for (const auto& [seconds, shown] : {std::pair{0.0009999, "1000 us"}, {0.9999, "1000 ms"}, {12345.0, "12345 s"}}) {
    const auto work = given_workload(seconds, 1);
    EXPECT_EQ(to_table(make_plan(work, {}, options)).rows[0][3], shown);
  }
}

TEST(ScalingPlan, DrawsAndTellsEachStrategy) {
  const auto plan = make_plan(workload(), {}, options_for({Strategy::kDdp, Strategy::kFsdp}, 64));
  const auto chart = to_chart(plan);
  ASSERT_EQ(chart.panels.size(), 2U);
  ASSERT_EQ(chart.panels[0].lines.size(), 2U);
  EXPECT_EQ(chart.panels[0].lines[0].points.size(), 7U);
  EXPECT_NE(to_text(to_table(plan), kUnlimitedWidth).find("predicted"), std::string::npos);
  const auto sentence = to_sentence(plan);
  EXPECT_NE(sentence.find("DDP: 64 devices are predicted"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("FSDP: 64 devices are predicted"), std::string::npos) << sentence;
}

}  // namespace
}  // namespace yoke::scaling
