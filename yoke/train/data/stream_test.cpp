// Tests loaders over streams.
#include "yoke/train/data/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>

#include "fakes/run_ranks.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"
#include "yoke/train/data/loader.h"

namespace yoke::train {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Numbers = std::vector<int64_t>;

struct Reads {
  std::atomic<int64_t> num_opened = 0, num_read = 0, num_skipped = 0;
};

// Pass p has the items 1000 p, 1000 p + 1, ... Samples are the items, with a random number if `adds_random`.
struct Counter {
  int64_t count = 0;
  std::shared_ptr<Reads> reads = std::make_shared<Reads>();
  int64_t broken_item = -1, broken_sample = -1;

  struct Reader {
    const Counter* counter;
    int64_t pass, item = 0;
    std::optional<int64_t> next() {
      if (item == counter->count) return std::nullopt;
      ++counter->reads->num_read;
      if (item == counter->broken_item) throw Error(ErrorCode::kDataLoss, "the stream breaks off");
      return 1000 * pass + item++;
    }
  };
  Reader open(int64_t pass) const {
    ++reads->num_opened;
    return {this, pass};
  }
  int64_t sample(int64_t item) const {
    if (item % 1000 == broken_sample) throw std::runtime_error("a broken sample");
    return item;
  }
};

struct Skipping {
  Counter counter;
  struct Reader : Counter::Reader {
    int64_t skip(int64_t count) {
      const int64_t num = std::min(count, counter->count - item);
      item += num;
      counter->reads->num_skipped += num;
      return num;
    }
  };
  Reader open(int64_t pass) const { return {counter.open(pass)}; }
  std::pair<int64_t, int64_t> sample(int64_t item, SampleRandom& random) const { return {item, random.below(1 << 30)}; }
};

struct Collect {
  template <class Sample>
  std::vector<Sample> operator()(const BatchRequest&, std::vector<Sample> samples) const {
    return samples;
  }
};

template <class Batches>
std::vector<Numbers> all_of(Batches&& batches) {
  std::vector<Numbers> result;
  for (auto& batch : batches) result.push_back(batch);
  return result;
}

Numbers joined(const std::vector<Numbers>& parts) {
  Numbers all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Numbers iota(int64_t count, int64_t first = 0) {
  Numbers all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

Numbers sorted(Numbers numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

TEST(StreamLoader, GivesEachItemOnceInAPass) {
  for (const int64_t num_workers : {0, 3}) {
    Loader loader(Counter{10}, {.batch_size = 4, .shuffle = false, .num_workers = num_workers}, Collect());
    EXPECT_THAT(all_of(loader.epoch(0)), ElementsAre(iota(4), iota(4, 4), iota(2, 8)));
    EXPECT_THAT(all_of(loader.epoch(2)), ElementsAre(iota(4, 2000), iota(4, 2004), iota(2, 2008)));
    EXPECT_EQ(text_of(loader.position()), "epoch 3, sample 0");
  }
}

TEST(StreamLoader, ShufflesWithinWindows) {
  Loader loader(Counter{100}, {.batch_size = 8, .num_workers = 0, .shuffle_window = 16}, Collect());
  const auto first = joined(all_of(loader.epoch(0))), second = joined(all_of(loader.epoch(1)));
  EXPECT_NE(first, iota(100));
  EXPECT_EQ(sorted(first), iota(100));
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i] / 16, static_cast<int64_t>(i / 16)) << i;
  auto as_first = second;
  for (auto& item : as_first) item -= 1000;
  EXPECT_NE(as_first, first);  // each pass has a different order
  EXPECT_EQ(sorted(as_first), iota(100));
}

using Drawn = std::vector<std::pair<int64_t, int64_t>>;

TEST(StreamLoader, GivesTheSameSamplesForAnyNumberOfWorkersAndRanksAndAfterResuming) {
  const auto samples_of = [](int64_t num_ranks, int64_t num_workers, const std::vector<int64_t>& resumed_at) {
    std::vector<Drawn> by_rank(static_cast<size_t>(num_ranks));
    fakes::run_ranks(num_ranks, [&](dist::World& world) {
      auto& mine = by_rank[static_cast<size_t>(world.rank())];
      const auto make = [&] {
        return Loader(Skipping{{96}}, world,
                      {.batch_size = 8 / world.size(), .seed = 5, .num_workers = num_workers, .shuffle_window = 20},
                      Collect());
      };
      auto loader = std::make_optional(make());
      auto stops = resumed_at;
      for (bool is_done = false; !is_done;) {
        is_done = true;
        for (const auto& batch : loader->epoch(1)) {
          mine.insert(mine.end(), batch.begin(), batch.end());
          if (stops.empty() || loader->position().sample != 8 * stops.front()) continue;
          stops.erase(stops.begin());
          const auto position = loader->position();
          loader.emplace(make());
          loader->resume(position);
          is_done = false;
          break;
        }
      }
    });
    Drawn all;  // rank 0's first sample, rank 1's first sample, ...
    for (size_t i = 0; i < by_rank.front().size(); ++i) {
      for (const auto& mine : by_rank) all.push_back(mine.at(i));
    }
    return all;
  };
  const auto expected = samples_of(1, 0, {});
  ASSERT_THAT(expected, SizeIs(96));
  for (const int64_t num_workers : {1, 4, 16}) EXPECT_EQ(samples_of(1, num_workers, {}), expected);
  for (const int64_t num_ranks : {2, 4}) EXPECT_EQ(samples_of(num_ranks, 2, {}), expected) << num_ranks;
  EXPECT_EQ(samples_of(1, 4, {1, 5, 11}), expected);
  EXPECT_EQ(samples_of(2, 0, {2, 3, 10}), expected);
}

// Ranks with batches of 5 stop within a window, where no batch of the next ones would begin.
TEST(StreamLoader, ContinuesOnAnyNumberOfRanks) {
  std::vector<Numbers> parts;
  const auto read = [&](int64_t num_ranks, int64_t batch_size, int64_t num_batches, const LoaderPosition& from) {
    LoaderPosition position;
    std::mutex mutex;
    fakes::run_ranks(num_ranks, [&](dist::World& world) {
      Loader loader(Counter{50}, world, {.batch_size = batch_size, .exact = true, .shuffle_window = 12}, Collect());
      loader.resume(from);
      Numbers mine;
      int64_t num_read = 0;
      for (const auto& batch : loader.epoch(0)) {
        mine.insert(mine.end(), batch.begin(), batch.end());
        if (++num_read == num_batches) break;
      }
      const std::lock_guard lock(mutex);
      position = loader.position();
      parts.push_back(std::move(mine));
    });
    return position;
  };
  EXPECT_EQ(read(1, 5, 3, {}).sample, 15);
  EXPECT_EQ(read(3, 4, -1, {.sample = 15}).epoch, 1);
  EXPECT_EQ(sorted(joined(parts)), iota(50));
}

// The epochs of a stream without an end follow each other: with another batch size, later epochs begin elsewhere, but
// no item is skipped or repeated.
TEST(StreamLoader, ContinuesEpochsOfAFixedLengthWithAnotherBatchSize) {
  const auto loader_with = [](int64_t batch_size) {
    return Loader(Counter{30}, {.batch_size = batch_size, .shuffle = false, .batches_per_epoch = 4}, Collect());
  };
  Numbers all;
  const auto add = [&](const Numbers& batch) { all.insert(all.end(), batch.begin(), batch.end()); };
  auto first = loader_with(3);
  for (const auto& batch : first.epoch(0)) add(batch);
  for (const auto& batch : first.epoch(1)) {
    add(batch);
    if (first.position().sample == 6) break;
  }
  EXPECT_EQ(text_of(first.position()), "epoch 1 from item 12, sample 6");
  auto second = loader_with(5);
  second.resume(first.position());
  EXPECT_EQ(second.num_batches(second.position()), 3);  // 6 + 3 * 5 is the first number that reaches 4 * 5
  for (const auto& batch : second.epoch(1)) add(batch);
  EXPECT_EQ(text_of(second.position()), "epoch 2 from item 33, sample 0");
  for (const auto& batch : second.epoch(2)) add(batch);
  auto third = loader_with(2);
  third.resume(second.position());
  for (const auto& batch : third.epoch(3)) add(batch);
  EXPECT_EQ(all, joined({iota(30), iota(30, 1000), iota(1, 2000)}));
  // A checkpoint of an older version counts batches.
  auto old = loader_with(5);
  LoaderPosition position;
  read_text("loader", "epoch 1, batch 2 of 3 samples", position);
  old.resume(position);
  EXPECT_EQ(old.epoch(1).begin()->front(), 18);
}

TEST(StreamLoader, SkipsWhatWasReadBeforeWithoutReadingIt) {
  Skipping stream{{1000}};
  Loader loader(stream, {.batch_size = 10, .num_workers = 0, .shuffle_window = 50}, Collect());
  loader.resume({.epoch = 0, .sample = 970});
  EXPECT_THAT(std::vector(1, loader.epoch(0).begin()->size()), Each(10));
  EXPECT_EQ(stream.counter.reads->num_skipped, 950);
  EXPECT_LE(stream.counter.reads->num_read, 50);
}

// 10 items on 4 ranks with batches of 2: the ranks' first batches take 8 items, and 2 items are left.
TEST(StreamLoader, GivesAllRanksTheSameNumberOfBatchesUnlessExact) {
  const auto share_of = [](bool exact, bool drop_last) {
    std::vector<Numbers> by_rank(4);
    fakes::run_ranks(4, [&](dist::World& world) {
      LoaderOptions options{.batch_size = 2, .exact = exact, .drop_last = drop_last, .shuffle_window = 3};
      by_rank[static_cast<size_t>(world.rank())] =
          joined(all_of(Loader(Counter{10}, world, options, Collect()).epoch(0)));
    });
    return by_rank;
  };
  const auto padded = share_of(false, false);
  EXPECT_THAT(padded, Each(SizeIs(3)));
  const auto numbers = joined(padded);
  EXPECT_EQ(std::set<int64_t>(numbers.begin(), numbers.end()).size(), 10u);
  EXPECT_THAT(share_of(false, true), Each(SizeIs(2)));
  const auto exact = share_of(true, false);
  EXPECT_THAT(exact, ElementsAre(SizeIs(3), SizeIs(3), SizeIs(2), SizeIs(2)));
  EXPECT_EQ(sorted(joined(exact)), iota(10));
}

TEST(StreamLoader, HasEpochsOfAFixedLengthOverAsManyPassesAsTheyNeed) {
  Counter stream{10};
  const LoaderOptions options{.batch_size = 2, .num_workers = 2, .shuffle_window = 4, .batches_per_epoch = 4};
  Loader loader(stream, options, Collect());
  EXPECT_EQ(loader.num_batches(), 4);
  Numbers all;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    const auto batches = all_of(loader.epoch(epoch));
    EXPECT_THAT(batches, SizeIs(4));
    for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(sorted(all), joined({iota(10), iota(10, 1000), iota(10, 2000), iota(10, 3000)}));
  EXPECT_EQ(stream.reads->num_opened, 4);  // each epoch continued where the previous epoch had ended
  for (const int64_t epoch : {3, 1}) {     // epochs can be loaded in any order
    Loader other(Counter{10}, options, Collect());
    other.resume({.epoch = epoch, .sample = 2});
    const auto rest = joined(all_of(other.epoch(epoch)));
    const auto first = all.begin() + epoch * 8 + 2;
    EXPECT_EQ(rest, Numbers(first, first + 6)) << epoch;
  }
}

TEST(StreamLoader, ThrowsTheErrorOfAReaderInItsPlaceAndAgainUntilTheNextEpoch) {
  for (const int64_t num_workers : {0, 2}) {
    Counter stream{.count = 10, .broken_item = 5};
    Loader loader(stream, {.batch_size = 2, .shuffle = false, .num_workers = num_workers}, Collect());
    loader.epoch(0);
    EXPECT_EQ(loader.next(), Numbers({0, 1}));
    EXPECT_EQ(loader.next(), Numbers({2, 3}));
    for (int i = 0; i < 3; ++i)
      EXPECT_THAT(message_of([&] { loader.next(); }, ErrorCode::kDataLoss), HasSubstr("the stream breaks off"));
    loader.epoch(1);
    EXPECT_EQ(loader.next(), Numbers({1000, 1001}));
  }
}

TEST(StreamLoader, LeavesOutSamplesThatCannotBeMade) {
  Loader loader(Counter{.count = 6, .broken_sample = 3},
                {.batch_size = 3, .shuffle = false, .num_workers = 2, .max_bad_samples = 1}, Collect());
  EXPECT_THAT(all_of(loader.epoch(0)), ElementsAre(Numbers({0, 1, 2}), Numbers({4, 5})));
  ASSERT_THAT(loader.bad_samples(), SizeIs(1));
  EXPECT_EQ(loader.bad_samples()[0].sample, 3);
  EXPECT_THAT(loader.bad_samples()[0].error, HasSubstr("a broken sample"));
}

TEST(StreamLoader, OfAnEmptyStreamHasNoBatches) {
  Loader loader(Counter{0}, {.batch_size = 2}, Collect());
  EXPECT_THAT(all_of(loader.epoch(0)), IsEmpty());
  Loader endless(Counter{0}, {.batch_size = 2, .batches_per_epoch = 3}, Collect());
  EXPECT_THAT(message_of([&] { all_of(endless.epoch(0)); }), HasSubstr("pass 0 of the stream has no samples"));
}

TEST(StreamLoader, RefusesWhatNeedsNumberedSamples) {
  Loader loader(Counter{4}, {.batch_size = 2}, Collect());
  EXPECT_THAT(message_of([&] { loader.num_batches(); }, ErrorCode::kFailedPrecondition),
              AllOf(HasSubstr("unknown"), HasSubstr("set batches_per_epoch")));
  EXPECT_THAT(message_of(
                  [&] {
                    loader.start({0, 1});
                  },
                  ErrorCode::kFailedPrecondition),
              HasSubstr("have no numbers; use epoch()"));
  EXPECT_THAT(message_of([] { Loader(Counter{4}, {.sampler = in_order(4)}, Collect()); }),
              HasSubstr("a stream has none"));
}

}  // namespace
}  // namespace yoke::train
