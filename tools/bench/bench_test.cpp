// Tests how `yoke bench` measures: rounds, kinds of data sets, and a loader whose cost is known.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>

#include "tools/bench/data.h"
#include "tools/bench/loader.h"
#include "tools/bench/measure.h"
#include "yoke/base/error.h"

namespace yoke::exercise {
namespace {

using namespace std::chrono_literals;

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
  double now = 0;
  const auto work = [&](char name) {
    return [&, name](int64_t) {
      order += name;
      now += 1e-3;
    };
  };
  Progress progress("test", false);
  const auto times = measure({{"a", work('a')}, {"b", work('b')}, {"c", work('c')}},
                             {.seconds = 0, .at_least = 3, .now = [&] { return now; }}, progress);
  ASSERT_GT(order.size(), 9U);
  EXPECT_EQ(order.substr(order.size() - 9), "abcbcacab") << "after the warm-up come three rounds";
  for (const auto& one : times) EXPECT_EQ(one.seconds.size(), 3U);
}

TEST(BenchMeasure, RepeatsShortWorkUntilTheClockCanTimeIt) {
  int64_t largest = 0;
  double now = 0;
  const auto work = [&](int64_t count) {
    largest = std::max(largest, count);
    now += 2e-6 * static_cast<double>(count);
  };
  Progress progress("test", false);
  const auto times = measure({{"short", work}}, {.seconds = 0, .at_least = 3, .now = [&] { return now; }}, progress);
  EXPECT_NEAR(static_cast<double>(largest), 500, 1) << "so often that it takes a millisecond";
  EXPECT_NEAR(times[0].median(), 2e-6, 1e-9);
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

/// A source whose batches take some time.
struct SleepingSource {
  std::chrono::milliseconds time;
  int64_t num_values = 1;  ///< Of a sample.

  int64_t size() const { return 1000; }
  train::Batch batch(const train::BatchRequest& request) const {
    std::this_thread::sleep_for(time);  // clock: the work of a batch
    const auto values = request.empty({request.size(), num_values}, at::kFloat).fill_(1);
    return {values, values};
  }
};

/// A loader that works on a clock of the test: each of its workers makes a batch in `batch_seconds`, and begins the
/// next one as long as fewer than `num_prefetch` batches wait. Without workers, next() makes the batch.
class PlannedFeed : public Feed {
 public:
  PlannedFeed(double& now, double batch_seconds, int64_t num_workers)
      : now_(now), batch_seconds_(batch_seconds), free_at_(static_cast<size_t>(num_workers), now) {
    for (int64_t i = 0; i < kNumPrefetch; ++i) begin_batch();
  }
  train::Batch next() override {
    if (free_at_.empty()) {
      now_ += batch_seconds_;
    } else {
      now_ = std::max(now_, ready_at_.front());
      ready_at_.pop_front();
      begin_batch();
    }
    return {at::zeros({10}), at::zeros({10})};
  }
  bool is_ready() const override { return !ready_at_.empty() && ready_at_.front() <= now_; }

 private:
  void begin_batch() {
    if (free_at_.empty()) return;
    auto& worker = free_at_[num_begun_++ % free_at_.size()];
    ready_at_.push_back(worker = std::max(now_, worker) + batch_seconds_);
  }

  static constexpr int64_t kNumPrefetch = 8;
  double& now_;
  double batch_seconds_;
  size_t num_begun_ = 0;
  std::vector<double> free_at_;  ///< When each worker can begin the next batch.
  std::deque<double> ready_at_;  ///< When each of the next batches is there.
};

std::vector<WorkersMeasurement> measure_planned(double batch_ms, double step_ms, const std::vector<int64_t>& workers) {
  double now = 1000;
  const FedTraining training{
      .open = [&](int64_t num_workers,
                  int64_t) { return std::make_unique<PlannedFeed>(now, batch_ms * 1e-3, num_workers); },
      .step = [&](const train::Batch&) { now += step_ms * 1e-3; },
      .cached = {{at::zeros({10}), at::zeros({10})}},
      .batch_size = 10};
  Progress progress("test", false);
  return measure_loader(training, workers, {.seconds = 1.5, .now = [&] { return now; }}, progress);
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
  const auto measured = measure_planned(4, 8, {0, 1});
  EXPECT_NEAR(cost_percent(measured[0]), 100.0 * 4 / 12, 0.1);
  EXPECT_NEAR(ready_percent(measured[0]), 0, 0.1);
  EXPECT_NEAR(cost_percent(measured[1]), 0, 0.1);
  EXPECT_GT(ready_percent(measured[1]), 90);
  EXPECT_NEAR(100 * quantile(costs_of(measured[0].cached, measured[0].one_batch), 0.5), 0, 0.1);
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
      .step = [](const train::Batch&) { std::this_thread::sleep_for(5ms); },  // clock: the work of a step
      .cached = {{at::zeros({10}), at::zeros({10})}},
      .batch_size = 10};
  Progress progress("test", false);
  const auto measured = measure_loader(training, {0, 2}, {.seconds = 0.5}, progress);
  EXPECT_LT(measured[0].memory_bytes, 30'000'000);
  EXPECT_GT(measured[1].memory_bytes, 2 * 8'000'000);
  EXPECT_LT(measured[1].memory_bytes, 100'000'000);
}

TEST(BenchLoader, ASlowLoaderCostsWhatItsWorkersCannotHide) {
  const auto measured = measure_planned(16, 8, {1, 4});
  EXPECT_NEAR(cost_percent(measured[0]), 100.0 * 8 / 16, 0.1);
  EXPECT_LT(ready_percent(measured[0]), 30);
  EXPECT_NEAR(cost_percent(measured[1]), 0, 0.1);
  const double one = quantile(measured[0].samples_per_second, 0.5);
  EXPECT_NEAR(one, 10 / 0.016, 1);
  EXPECT_GT(quantile(measured[1].samples_per_second, 0.5), 3 * one);
}

}  // namespace
}  // namespace yoke::exercise
