#include "yoke/slurm/job/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace yoke::slurm {
namespace {

NodeSample sample_at(double begin, double length) {
  NodeSample sample{.job = 7, .step = "0", .host = "n1", .begin = begin, .seconds = length, .num_samples = 3};
  sample.num_cpus = 4;
  sample.cpu_seconds = 10;
  sample.memory_peak_bytes = 100;
  sample.source = "cgroup";
  sample.devices = {{.id = "0", .uuid = "GPU-1", .name = "A100", .known_seconds = length, .mean_percent = 50}};
  sample.devices[0].energy_mj = 1000;
  return sample;
}

TEST(SlurmSample, IsReadAsItWasWritten) {
  auto sample = sample_at(1000, 20);
  sample.is_finished = true;
  sample.cluster = "alpha";
  sample.num_oom_kills = 2;
  sample.memory_with_files_peak_bytes = 500;
  EXPECT_EQ(parse_sample(to_json(sample).dump()), sample);
}

TEST(SlurmSample, OfAnotherFormatIsNotRead) {
  for (const auto* text : {"", "{}", "[]", "{\"format\": \"yoke slurm sample 2\"}", "{\"format\": 3}"}) {
    EXPECT_EQ(parse_sample(text), std::nullopt) << text;
  }
  const auto damaged =
      parse_sample(R"({"format": "yoke slurm sample 1", "job": "x", "seconds": -3, "cpu_seconds": 1e300,
                                        "devices": [3, {"id": 4}]})");
  ASSERT_TRUE(damaged);
  EXPECT_EQ(damaged->job, 0);
  EXPECT_EQ(damaged->seconds, 0);
  EXPECT_EQ(damaged->cpu_seconds, std::nullopt);
  EXPECT_EQ(damaged->devices.size(), 1U);
}

TEST(SlurmSample, OfOneStepAfterTheOtherAddsUp) {
  auto later = sample_at(2000, 60);
  later.devices[0].mean_percent = 90;
  later.memory_peak_bytes = 300;
  later.num_oom_kills = 1;
  const auto merged = merged_by_host({later, sample_at(1000, 20)});
  ASSERT_EQ(merged.size(), 1U);
  EXPECT_EQ(merged[0].seconds, 80);
  EXPECT_EQ(merged[0].cpu_seconds, 20);
  EXPECT_EQ(merged[0].memory_peak_bytes, 300);
  EXPECT_EQ(merged[0].num_oom_kills, 1);
  EXPECT_EQ(merged[0].devices.at(0).mean_percent, 80);
  EXPECT_EQ(merged[0].devices.at(0).energy_mj, 2000);
}

TEST(SlurmSample, OfTwoAtOnceDoesNotAddUp) {
  auto other = sample_at(1010, 20);
  other.host = "n2";
  const auto merged = merged_by_host({sample_at(1000, 20), sample_at(1010, 20), other});
  ASSERT_EQ(merged.size(), 2U);
  EXPECT_EQ(merged[0].seconds, 30);
  EXPECT_EQ(merged[0].cpu_seconds, 10);
  EXPECT_EQ(merged[0].devices.at(0).energy_mj, 1000);
  EXPECT_EQ(merged[1].host, "n2");
}

TEST(SlurmSample, OfAnEarlierRunIsLeftOut) {
  auto again = sample_at(3000, 5);
  again.restart = 1;
  const auto merged = merged_by_host({sample_at(1000, 20), again});
  ASSERT_EQ(merged.size(), 1U);
  EXPECT_EQ(merged[0].seconds, 5);
}

TEST(SlurmSample, AfterAPauseIsMergedByItsOwnTime) {
  auto third = sample_at(2010, 20);
  third.cpu_seconds = 15;
  const auto merged = merged_by_host({sample_at(1000, 20), sample_at(2000, 20), third});
  ASSERT_EQ(merged.size(), 1U);
  EXPECT_EQ(merged[0].seconds, 50);
  EXPECT_EQ(merged[0].cpu_seconds, 20) << "the third one has seen the same as the second one";
}

TEST(SlurmSample, OfAnotherJobWithThisNumberIsRemoved) {
  auto elsewhere = sample_at(5000, 20), unnamed = sample_at(5000, 20), here = sample_at(4950, 20);
  elsewhere.cluster = "beta";
  here.cluster = "alpha";
  std::vector samples = {elsewhere, unnamed, here, sample_at(1000, 20)};
  const auto doubts = keep_samples_of({.cluster = "alpha", .submitted = Time(Seconds(5000))}, samples);
  EXPECT_EQ(samples, (std::vector{unnamed, here}));
  EXPECT_THAT(doubts, testing::ElementsAre(testing::HasSubstr("1 sampling of n1")));
  EXPECT_THAT(keep_samples_of({}, samples), testing::IsEmpty());
  EXPECT_EQ(samples.size(), 2U);
}

// munge lets clocks differ by five minutes. What the accounts know of another job or run decides before that.
TEST(SlurmSample, OfASlowClockIsKeptUnlessAnotherRunExplainsIt) {
  struct Case {
    double begin;
    int64_t restart;
    SampledRun run;
    size_t num_kept, num_doubts;
  };
  const auto at = [](int64_t second) { return Time(Seconds(second)); };
  const std::vector<Case> cases = {
      {4820, 0, {.submitted = at(5000)}, 1, 1},  // three minutes behind
      {4699, 0, {.submitted = at(5000)}, 0, 1},
      {4820, 0, {.submitted = at(5000), .others = {{at(4800), at(4900)}}}, 0, 0},
      {4910, 0, {.submitted = at(5000), .others = {{at(4800), at(4900)}}}, 1, 1},
      {4990, 0, {.submitted = at(5000), .restart = 1}, 0, 0},
      {4990, 1, {.submitted = at(5000), .restart = 1, .others = {{at(4800), at(4900)}}}, 1, 0},
  };
  for (const auto& [begin, restart, run, num_kept, num_doubts] : cases) {
    std::vector samples = {sample_at(begin, 20)};
    samples[0].restart = restart;
    EXPECT_EQ(keep_samples_of(run, samples).size(), num_doubts) << begin;
    EXPECT_EQ(samples.size(), num_kept) << begin;
  }
}

}  // namespace
}  // namespace yoke::slurm
