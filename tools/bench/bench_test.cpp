// Tests how `yoke bench` measures: rounds, kinds of data sets, and a loader whose cost is known.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tools/bench/data.h"
#include "tools/bench/loader.h"
#include "tools/bench/measure.h"
#include "yoke/base/error.h"

namespace yoke::exercise {
namespace {

TEST(BenchTimes, QuantilesAreInterpolated) {
  const std::vector<double> values = {4, 1, 3, 2, 5};
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.1), 1.4);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 5);
  EXPECT_DOUBLE_EQ(quantile({7}, 0.9), 7);
}

TEST(BenchTimes, SpeedupsCompareTimesOfTheSameRound) {
  // The machine becomes ten times slower after the first round. In each round one case takes twice as long.
  Json row;
  add_speedup(row, {.seconds = {2, 20, 20}}, {.seconds = {1, 10, 10}});
  EXPECT_EQ(row, (Json{{"speedup", 2.0}, {"speedup_p10", 2.0}, {"speedup_p90", 2.0}}));
}

TEST(BenchMeasure, TakesTheCasesInTurnAndBeginsEachRoundWithAnother) {
  std::string order;
  const auto work = [&](char name) {
    return [&order, name](int64_t) {
      order += name;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
  };
  Progress progress("test", false);
  const auto times =
      measure({{"a", work('a')}, {"b", work('b')}, {"c", work('c')}}, {.seconds = 0, .at_least = 3}, progress);
  ASSERT_GT(order.size(), 9U);
  EXPECT_EQ(order.substr(order.size() - 9), "abcbcacab") << "after the warm-up come three rounds";
  for (const auto& one : times) EXPECT_EQ(one.seconds.size(), 3U);
}

TEST(BenchMeasure, RepeatsShortWorkUntilTheClockCanTimeIt) {
  int64_t largest = 0;
  Progress progress("test", false);
  const auto times = measure({{"nothing", [&](int64_t count) { largest = std::max(largest, count); }}},
                             {.seconds = 0, .at_least = 3}, progress);
  EXPECT_GT(largest, 100);
  EXPECT_LT(times[0].median(), 1e-4);
}

TEST(BenchData, AFoldersKindFollowsFromItsNames) {
  using Names = std::vector<std::string>;
  const struct {
    Names files, folders;
    DataKind kind;
  } cases[] = {
      {{}, {"cat", "dog"}, DataKind::kImageFolder},
      {{"README"}, {"cat"}, DataKind::kImageFolder},
      {{"000.tar", "001.tar"}, {}, DataKind::kTarShards},
      {{"000.tar"}, {"old"}, DataKind::kTarShards},
      {{"data_batch_1.bin", "test_batch.bin"}, {}, DataKind::kCifar10},
      {{}, {"cifar-10-batches-bin"}, DataKind::kCifar10},
      {{"train.bin", "test.bin", "fine_label_names.txt"}, {}, DataKind::kCifar100},
      {{}, {"cifar-100-binary"}, DataKind::kCifar100},
      {{"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"}, {}, DataKind::kIdx},
      {{"train.bin", "val.bin"}, {}, DataKind::kTokens},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(kind_of_folder("data", one.files, one.folders), one.kind)
        << testing::PrintToString(one.files) << testing::PrintToString(one.folders);
  }
  EXPECT_THROW(kind_of_folder("data", {}, {}), Error);
  EXPECT_THROW(kind_of_folder("data", {"notes.txt"}, {}), Error);
}

TEST(BenchLoader, TriesPowersOfTwoAndAllCpus) {
  EXPECT_EQ(usual_workers(1), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(usual_workers(2), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(usual_workers(6), (std::vector<int64_t>{0, 1, 2, 4, 6}));
  EXPECT_EQ(usual_workers(16), (std::vector<int64_t>{0, 1, 2, 4, 8, 16}));
}

/// A source whose batches take a known time.
struct SleepingSource {
  std::chrono::milliseconds time;
  int64_t num_values = 1;  ///< Of a sample.

  int64_t size() const { return 1000; }
  train::Batch batch(const train::BatchRequest& request) const {
    std::this_thread::sleep_for(time);
    const auto values = request.empty({request.size(), num_values}, at::kFloat).fill_(1);
    return {values, values};
  }
};

std::vector<WorkersMeasurement> measure_sleeping(int64_t batch_ms, int64_t step_ms,
                                                 const std::vector<int64_t>& workers) {
  const FedTraining training{
      .open =
          [=](int64_t num_workers, int64_t round) {
            return std::make_unique<LoaderFeed<SleepingSource>>(
                SleepingSource{.time = std::chrono::milliseconds(batch_ms)},
                FeedOptions{.batch_size = 10, .num_workers = num_workers, .first_epoch = round});
          },
      .step = [=](const train::Batch&) { std::this_thread::sleep_for(std::chrono::milliseconds(step_ms)); },
      .cached = {{at::zeros({10}), at::zeros({10})}},
      .batch_size = 10};
  Progress progress("test", false);
  return measure_loader(training, workers, {.seconds = 1.5}, progress);
}

double cost_percent(const WorkersMeasurement& measured) {
  return 100 * quantile(costs_of(measured.fed, measured.cached), 0.5);
}

double ready_percent(const WorkersMeasurement& measured) {
  std::vector<double> shares;
  for (const auto& stretch : measured.fed) shares.push_back(100 * stretch.ready_share);
  return quantile(shares, 0.5);
}

// Oracle: without a worker, a step takes its own time plus that of its batch; a worker that is faster than the step
// adds nothing.
TEST(BenchLoader, CostsWhatWasPlanted) {
  const auto measured = measure_sleeping(4, 8, {0, 1});
  EXPECT_NEAR(cost_percent(measured[0]), 100.0 * 4 / 12, 5);
  EXPECT_NEAR(ready_percent(measured[0]), 0, 1);
  EXPECT_NEAR(cost_percent(measured[1]), 0, 5);
  EXPECT_GT(ready_percent(measured[1]), 90);
  EXPECT_NEAR(100 * quantile(costs_of(measured[0].cached, measured[0].one_batch), 0.5), 0, 5);
}

// Oracle: two workers keep at least four batches of 8 MB ready.
TEST(BenchLoader, TellsTheMemoryThatItTakes) {
  const FedTraining training{
      .open =
          [](int64_t num_workers, int64_t round) {
            return std::make_unique<LoaderFeed<SleepingSource>>(
                SleepingSource{.time = std::chrono::milliseconds(1), .num_values = 200'000},
                FeedOptions{.batch_size = 10, .num_workers = num_workers, .num_prefetch = 4, .first_epoch = round});
          },
      .step = [](const train::Batch&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); },
      .cached = {{at::zeros({10}), at::zeros({10})}},
      .batch_size = 10};
  Progress progress("test", false);
  const auto measured = measure_loader(training, {0, 2}, {.seconds = 0.5}, progress);
  EXPECT_LT(measured[0].memory_bytes, 30'000'000);
  EXPECT_GT(measured[1].memory_bytes, 2 * 8'000'000);
  EXPECT_LT(measured[1].memory_bytes, 100'000'000);
}

TEST(BenchLoader, ASlowLoaderCostsWhatItsWorkersCannotHide) {
  const auto measured = measure_sleeping(16, 8, {1, 4});
  EXPECT_NEAR(cost_percent(measured[0]), 100.0 * 8 / 16, 5);
  EXPECT_LT(ready_percent(measured[0]), 30);
  EXPECT_NEAR(cost_percent(measured[1]), 0, 6);
  const double one = quantile(measured[0].samples_per_second, 0.5);
  EXPECT_NEAR(one, 10 / 0.016, 60);
  EXPECT_GT(quantile(measured[1].samples_per_second, 0.5), 3 * one);
}

}  // namespace
}  // namespace yoke::exercise
