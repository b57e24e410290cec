#include "yoke/scaling/model.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/scaling/memory.h"

namespace yoke::scaling {
namespace {

Topology site(double latency_us, double gb_per_second, int64_t devices_per_node = 8) {
  const Level level{.latency_seconds = latency_us * 1e-6, .bandwidth = {{1, gb_per_second * 1e9}}};
  return {.intra = level, .inter = level, .devices_per_node = devices_per_node};
}

/// 100 ms: 30 forward, 60 backward in `num_gradients` equal pieces, 10 optimizer.
Workload workload(int64_t num_gradients, int64_t bytes_each) {
  Workload work{.forward_seconds = 0.03, .backward_seconds = 0.06, .optimizer_seconds = 0.01};
  for (int64_t i = 0; i < num_gradients; ++i) {
    work.gradients.push_back({0.06 * static_cast<double>(i + 1) / static_cast<double>(num_gradients), bytes_each});
  }
  return work;
}

TEST(ScalingSchedule, RunsQueuesBesideEachOther) {
  const Task compute[] = {{1}, {2}, {1, 0}}, link[] = {{1.5, 0}};
  // 1 of compute, then 2 of compute beside 1.5 of the link, then 1.
  EXPECT_DOUBLE_EQ(simulate(compute, link, 0).seconds, 4);
  EXPECT_DOUBLE_EQ(simulate(compute, link, 1).seconds, 5.5);
  EXPECT_DOUBLE_EQ(simulate(compute, link, 0.5).seconds, 4.75);
  EXPECT_DOUBLE_EQ(simulate(compute, link, 0.5).waiting_seconds, 0.75);
  const Task late[] = {{3, 1}};
  EXPECT_DOUBLE_EQ(simulate(compute, late, 0).seconds, 7);
  EXPECT_THROW(simulate({}, link, 0), Error) << "a task that never comes";
}

TEST(ScalingModel, OneDeviceTakesItsMeasuredStep) {
  for (const auto strategy : {Strategy::kDdp, Strategy::kZero1, Strategy::kFsdp}) {
    const auto one =
        predict_step(workload(10, 1 << 20), 1, site(5, 10), {.strategy = strategy, .neighbour_slowdown = 2});
    EXPECT_DOUBLE_EQ(one.step_seconds, 0.1);
    EXPECT_EQ(one.exposed_seconds, 0);
  }
}

TEST(ScalingModel, WithoutCommunicationEveryStepIsThatOfOneDevice) {
  const Topology infinite;  // no latency, and bandwidth without end
  for (const int64_t n : {2, 8, 4096}) {
    const auto step = predict_step(workload(100, 1 << 20), n, infinite, {});
    EXPECT_NEAR(step.step_seconds, 0.1, 1e-12) << n;
    EXPECT_NEAR(predict_step(workload(100, 1 << 20), n, infinite, {.strategy = Strategy::kFsdp}).step_seconds,
                0.09 + 0.01 / static_cast<double>(n), 1e-12);
    EXPECT_NEAR(predict_step(workload(100, 1 << 20), n, infinite, {.strategy = Strategy::kZero1}).step_seconds,
                0.09 + 0.01 / static_cast<double>(n), 1e-12);
  }
}

// Oracle: a single bucket is ready at the end of backward, so all of its all-reduce is exposed.
TEST(ScalingModel, OneBucketIsExposedAsAWhole) {
  const auto work = workload(1, 100 << 20);
  for (const double contention : {0.0, 1.0}) {
    const auto step = predict_step(work, 4, site(5, 10), {.contention = contention});
    const double all_reduce = 2 * 3 * 5e-6 + 2.0 * 3 / 4 * (100 << 20) / 10e9;
    EXPECT_NEAR(step.step_seconds, 0.1 + all_reduce, 1e-9);
    EXPECT_NEAR(step.exposed_seconds, all_reduce, 1e-9);
  }
}

// Oracle: if the link is never idle after the first bucket, the step is the first bucket's time and all communication.
TEST(ScalingModel, ASlowLinkDeterminesTheStep) {
  const auto work = workload(4, 26 << 20);  // each gradient is a bucket
  const double all_reduce = 2 * 5e-6 + (26 << 20) / 1e9;
  const auto step = predict_step(work, 2, site(5, 1), {});
  EXPECT_NEAR(step.step_seconds, 0.03 + 0.015 + 4 * all_reduce + 0.01, 1e-9);
}

// Oracle: a fast link hides all buckets but the last one.
TEST(ScalingModel, AFastLinkExposesTheLastBucketAlone) {
  const auto work = workload(4, 26 << 20);
  const double all_reduce = 2 * 5e-6 + (26 << 20) / 100e9;
  EXPECT_NEAR(predict_step(work, 2, site(5, 100), {}).step_seconds, 0.1 + all_reduce, 1e-9);
  EXPECT_NEAR(predict_step(work, 2, site(5, 100), {.contention = 1}).step_seconds, 0.1 + 4 * all_reduce, 1e-9);
}

TEST(ScalingModel, BucketsAreThoseOfDistributedDataParallel) {
  std::vector<Gradient> gradients;
  for (int i = 1; i <= 60; ++i) gradients.push_back({0.001 * i, 1 << 20});
  const auto buckets = buckets_of({.gradients = gradients}, 1 << 20, 25 << 20);
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_EQ(buckets[0].bytes, 1 << 20);
  EXPECT_EQ(buckets[1].bytes, 25 << 20);
  EXPECT_DOUBLE_EQ(buckets[1].ready_seconds, 0.026);
  EXPECT_EQ(buckets[3].bytes, 9 << 20);
  EXPECT_DOUBLE_EQ(buckets[3].ready_seconds, 0.060);
  EXPECT_TRUE(buckets_of({}, 1, 1).empty());
}

TEST(ScalingModel, EvenGradientsAreCutWhereABucketIsFull) {
  constexpr int64_t kMiB = 1 << 20;
  const Workload work{.backward_seconds = 1, .gradients = {{1, 61 * kMiB + 7}}, .is_even = true};
  const auto buckets = buckets_of(work, kMiB, 25 * kMiB);
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_EQ(buckets[0].bytes, kMiB);
  EXPECT_EQ(buckets[2].bytes, 25 * kMiB);
  EXPECT_EQ(buckets[3].bytes, 10 * kMiB + 7);
  EXPECT_NEAR(buckets[1].ready_seconds, 26.0 / 61, 1e-6);
  EXPECT_DOUBLE_EQ(buckets[3].ready_seconds, 1);
  const Workload huge{.backward_seconds = 1, .gradients = {{1, int64_t{1} << 50}}, .is_even = true};
  EXPECT_LE(buckets_of(huge, kMiB, 25 * kMiB).size(), (1U << 18) + 1);
}

TEST(ScalingModel, UnitsAreAsEqualAsTheGradientsAllow) {
  const auto bytes_of = [](const std::vector<Bucket>& units) {
    std::vector<int64_t> bytes;
    for (const auto& unit : units) bytes.push_back(unit.bytes);
    return bytes;
  };
  const Workload even{.backward_seconds = 1, .gradients = {{1, 26}}, .is_even = true};
  EXPECT_EQ(bytes_of(units_of(even, 4)), (std::vector<int64_t>{7, 7, 6, 6}));
  EXPECT_EQ(units_of(even, 1000).size(), 26U);
  Workload work{.gradients = {{1, 10}, {2, 10}, {3, 10}, {4, 500}, {5, 10}, {6, 20}}};
  EXPECT_EQ(bytes_of(units_of(work, 28)), (std::vector<int64_t>{20, 510, 10, 20}));
  EXPECT_EQ(bytes_of(units_of(work, 1)), (std::vector<int64_t>{560}));
  EXPECT_DOUBLE_EQ(gathered_share(units_of(work, 28)), 530.0 / 560);
  EXPECT_DOUBLE_EQ(gathered_share(units_of(even, 26)), 2.0 / 26);
  EXPECT_DOUBLE_EQ(gathered_share(units_of(even, 1)), 1);
}

// Oracle: the more parameters a network has, the more FSDP sends.
TEST(ScalingModel, MoreParametersAreNeverFaster) {
  double before = 0;
  for (int64_t bytes = 24 << 10; bytes < int64_t{1} << 40; bytes += bytes / (7 * 24) * 24) {  // units are equal
    Workload work{.forward_seconds = 0.003, .backward_seconds = 0.006, .gradients = {{0.006, bytes}}, .is_even = true};
    const double seconds = predict_step(work, 64, site(50, 200), {.strategy = Strategy::kFsdp}).step_seconds;
    EXPECT_GE(seconds, before * (1 - 1e-9)) << bytes;
    before = seconds;
  }
}

TEST(ScalingModel, ALoaderLimitsTheStep) {
  auto work = workload(4, 1 << 20);
  work.loader_seconds = 0.25;
  for (const int64_t n : {1, 2, 64}) {
    const auto step = predict_step(work, n, site(5, 100), {});
    EXPECT_NEAR(step.step_seconds, 0.25, 1e-12);
    EXPECT_GT(step.loader_wait_seconds, 0.1);
  }
}

TEST(ScalingModel, NeighboursSlowComputingDown) {
  const auto step = predict_step(workload(4, 1 << 20), 2, Topology(), {.neighbour_slowdown = 1.2});
  EXPECT_NEAR(step.step_seconds, 0.12, 1e-12);
}

// Oracle: FSDP on a slow link sends nearly three times the parameters one way; DDP sends twice.
TEST(ScalingModel, StrategiesSendWhatTheirPapersSay) {
  const auto work = workload(240, 10 << 20);
  const double all = 240.0 * (10 << 20), part = 7.0 / 8 * all / 1e9;
  const auto seconds = [&](Strategy strategy) {
    return predict_step(work, 8, site(0, 1), {.strategy = strategy}).communication_seconds;
  };
  EXPECT_NEAR(seconds(Strategy::kDdp), 2 * part, 1e-6);
  EXPECT_NEAR(seconds(Strategy::kZero1), 2 * part, 1e-6);
  EXPECT_NEAR(seconds(Strategy::kFsdp), 3 * part - part / 24, 1e-6) << "the last unit of forward stays for backward";
}

// Oracle: a unit's gradients are reduced after its backward; with a single unit, nothing overlaps.
TEST(ScalingModel, FsdpWithOneUnitOverlapsNothing) {
  const auto work = workload(10, 10 << 20);
  const double part = 0.5 * 100 * (1 << 20) / 1e9;
  const auto step = predict_step(work, 2, site(0, 1), {.strategy = Strategy::kFsdp, .num_units = 1});
  EXPECT_NEAR(step.step_seconds, part + 0.09 + part + 0.005, 1e-9);
}

TEST(ScalingModel, MoreContentionIsNeverFaster) {
  for (const auto strategy : {Strategy::kDdp, Strategy::kZero1, Strategy::kFsdp}) {
    double before = 0;
    for (const double contention : {0.0, 0.3, 0.7, 1.0}) {
      const auto step =
          predict_step(workload(100, 4 << 20), 16, site(5, 5), {.strategy = strategy, .contention = contention});
      EXPECT_GE(step.step_seconds, before - 1e-12) << name(strategy);
      EXPECT_NEAR(step.step_seconds, step.compute_seconds + step.exposed_seconds, 1e-9);
      before = step.step_seconds;
    }
  }
}

TEST(ScalingModel, WorksWithoutGradients) {
  for (const auto strategy : {Strategy::kDdp, Strategy::kZero1, Strategy::kFsdp}) {
    EXPECT_GT(predict_step(workload(0, 0), 8, site(5, 10), {.strategy = strategy}).step_seconds, 0.09);
  }
}

// Source: the table of docs/sharded-training.md (16, 12, 10, 9 and 16, 8, 4, 2 bytes per parameter), and ZeRO,
// sec. 3.1.
TEST(ScalingMemory, IsThatOfThePapers) {
  const auto bytes = [](Strategy strategy, int64_t n, Precision precision) {
    const auto memory = memory_of(strategy, n, {.num_parameters = 1'000'000'000, .precision = precision});
    return (memory.parameter_bytes + memory.gradient_bytes + memory.state_bytes) / 1e9;
  };
  for (const int64_t n : {1, 2, 4, 8}) EXPECT_DOUBLE_EQ(bytes(Strategy::kDdp, n, Precision::kFloat32), 16);
  EXPECT_DOUBLE_EQ(bytes(Strategy::kZero1, 2, Precision::kFloat32), 12);
  EXPECT_DOUBLE_EQ(bytes(Strategy::kZero1, 8, Precision::kFloat32), 9);
  EXPECT_DOUBLE_EQ(bytes(Strategy::kFsdp, 8, Precision::kFloat32), 2);
  EXPECT_DOUBLE_EQ(bytes(Strategy::kDdp, 64, Precision::kMixed), 16);
  EXPECT_DOUBLE_EQ(bytes(Strategy::kFsdp, 64, Precision::kMixed), 16.0 / 64);
}

TEST(ScalingMemory, CountsBucketsAndGatheredUnits) {
  const MemoryOptions options{.num_parameters = 1000, .gathered_share = 0.2, .other_bytes = 7};
  EXPECT_EQ(memory_of(Strategy::kDdp, 1, options).total(), 16'007);
  EXPECT_EQ(memory_of(Strategy::kDdp, 2, options).total(), 20'007) << "a second copy of the gradients";
  EXPECT_EQ(memory_of(Strategy::kFsdp, 2, options).total(), 8000 + 1600 + 7) << "two units, and their gradients";
}

}  // namespace
}  // namespace yoke::scaling
