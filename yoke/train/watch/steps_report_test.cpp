#include "yoke/train/watch/detail/steps_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace yoke::train::detail {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

/// A window of ten steps, in milliseconds of a step: data, forward, backward, wait, optimizer, other.
PhaseTimes window_of(PhaseTimes of_step) {
  for (auto& time : of_step) time *= 10 * kMillisecond;
  return of_step;
}

TEST(StepsReport, HasTheMeansOfEachRankAndTellsTheExchangeFromWaiting) {
  const std::vector<std::vector<PhaseTimes>> ranks = {
      {window_of({{1, 10, 20, 12, 2, 1}}), window_of({{1, 12, 20, 10, 2, 1}}), window_of({{1, 14, 20, 8, 2, 1}})},
      {window_of({{1, 10, 30, 2, 2, 1}}), window_of({{1, 10, 30, 2, 2, 1}}), window_of({{1, 10, 30, 2, 2, 1}})}};
  const Slowdown slowdown{.rank = 1, .phase = Phase::kBackward, .lost_ms = 10, .step_ms = 46, .since = 101};
  const auto report = nlohmann::json::parse(
      steps_report({.ranks = ranks, .steps_per_window = 10, .first_step = 101, .slowdown = slowdown}));
  EXPECT_EQ(report["bottleneck"], "skew");
  EXPECT_NEAR(report["gain_ceiling_percent"].get<double>(), 100.0 * 10 / 46, 0.01);
  EXPECT_EQ(report["evidence"][0], to_text(slowdown));
  EXPECT_EQ(report["world_size"], 2);
  EXPECT_EQ(report["last_step"], 130);
  const auto& first = report["ranks"][0];
  EXPECT_EQ(first["steps"], 30);
  EXPECT_EQ(first["step"],
            (nlohmann::json{{"ms", 46.0}, {"error_ms", 0.0}, {"median_ms", 46.0}, {"long", 0}, {"parts", 3}}));
  EXPECT_EQ(first["phases"]["forward"],
            (nlohmann::json{{"ms", 12.0}, {"error_ms", std::round(2e3 / std::sqrt(3)) / 1e3}}));
  EXPECT_EQ(first["phases"]["communication"]["ms"], 2);
  EXPECT_EQ(first["phases"]["waiting"]["ms"], 8);
  EXPECT_EQ(report["ranks"][1]["phases"]["waiting"]["ms"], 0);
  EXPECT_EQ(report["ranks"][1]["phases"]["backward"]["ms"], 30);
}

TEST(StepsReport, WithoutASlowdownThereIsNoBottleneck) {
  const std::vector<std::vector<PhaseTimes>> ranks = {{window_of({{1, 1, 1, 1, 1, 1}})}};
  const auto report = nlohmann::json::parse(steps_report({.ranks = ranks, .steps_per_window = 10, .first_step = 1}));
  EXPECT_EQ(report["bottleneck"], "none");
  EXPECT_EQ(report["evidence"], nlohmann::json::array());
  EXPECT_TRUE(report["ranks"][0]["step"]["error_ms"].is_null()) << "one window has no spread";
}

}  // namespace
}  // namespace yoke::train::detail
