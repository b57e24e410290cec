#include "yoke/train/data/detail/epoch_division.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/train/data/loader_position.h"
#include "yoke/train/data/sampler.h"

namespace yoke::train {
namespace {

using detail::EpochDivision;
using detail::EpochDivisionOptions;
using testing::ElementsAre;
using testing::HasSubstr;

/// Positions of an epoch's order. A position behind the end is a sample of its beginning, seen again.
using Positions = std::vector<int64_t>;

EpochDivision division_of(EpochDivisionOptions options, int64_t rank) {
  options.rank = rank;
  return EpochDivision(options);
}

/// What all ranks have in their batches [0, num_batches), in the order in which their optimizers see it.
std::vector<Positions> batches_read(const EpochDivisionOptions& options, int64_t num_batches) {
  std::vector<Positions> result(static_cast<size_t>(num_batches));
  for (int64_t rank = 0; rank < options.num_ranks; ++rank) {
    const auto division = division_of(options, rank);
    for (int64_t number = 0; number < std::min(num_batches, division.num_batches()); ++number) {
      const auto [first, size] = division.batch(number);
      for (int64_t i = first; i < first + size; ++i) {
        result[static_cast<size_t>(number)].push_back(division.position(i));
      }
    }
  }
  for (auto& batch : result) std::ranges::sort(batch);
  return result;
}

Positions positions_of(const std::vector<Positions>& batches) {
  Positions result;
  for (const auto& batch : batches) result.insert(result.end(), batch.begin(), batch.end());
  return result;
}

std::string division_text(const EpochDivisionOptions& o) {
  return fmt::format("{} of {} samples, {} ranks with batches of {}{}{}", o.first, o.num_positions, o.num_ranks,
                     o.batch_size, o.exact ? ", exact" : "", o.drop_last ? ", drop_last" : "");
}

// Each way ends an epoch in its own way; everything before is the order, each position once.
void expect_rest_of_epoch(const Positions& seen, const EpochDivisionOptions& last, const std::string& what) {
  const int64_t num_seen = std::ssize(seen);
  for (int64_t i = 0; i < num_seen; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i) << what;
  if (last.exact) {
    EXPECT_EQ(num_seen, last.num_positions) << what;
  } else if (last.drop_last) {
    EXPECT_LE(num_seen, last.num_positions) << what;
    EXPECT_GT(num_seen + last.batch_size * last.num_ranks, last.num_positions) << what;
  } else {
    EXPECT_GE(num_seen, last.num_positions) << what;
    EXPECT_LT(num_seen - last.num_positions, last.num_ranks) << what;
  }
}

// The property behind "resume anywhere": whatever ranks and batch sizes read an epoch one after the other, and wherever
// each of them is killed, together they read the positions of the order one after the other.
TEST(EpochDivision, AnyRanksContinueWhereAnyOthersStopped) {
  std::mt19937 random(1);
  const auto below = [&](int64_t count) { return static_cast<int64_t>(random() % static_cast<uint64_t>(count)); };
  int64_t num_inside = 0;  // resumed where no batch of the new size would begin
  for (int round = 0; round < 20'000; ++round) {
    EpochDivisionOptions options{.num_positions = below(200)};
    const int64_t way = below(3);
    options.exact = way == 1;
    options.drop_last = way == 2;
    Positions seen;
    std::string what;
    for (bool is_last = false; !is_last;) {
      is_last = below(3) == 0;
      options.num_ranks = 1 + below(9);
      options.batch_size = 1 + below(12);
      what += division_text(options) + "\n";
      num_inside += options.first % (options.batch_size * options.num_ranks) != 0 ? 1 : 0;
      // The rank that begins has a sample more than others if any rank has.
      const auto whole = division_of(options, options.first % options.num_ranks);
      for (int64_t rank = 0; rank < options.num_ranks; ++rank) {
        const auto other = division_of(options, rank);
        // With exact, a rank may have a sample less, and with batches of one sample or no samples, a batch less.
        const bool may_differ = options.exact && (options.batch_size == 1 || other.num_samples() == 0);
        if (!may_differ) {
          ASSERT_EQ(other.num_batches(), whole.num_batches()) << what << "rank " << rank;
        }
        for (int64_t number = 0; number <= whole.num_batches(); ++number) {
          ASSERT_EQ(other.sample_after(number), whole.sample_after(number)) << what << "rank " << rank;
        }
      }
      const int64_t num_batches = is_last ? whole.num_batches() : below(whole.num_batches() + 1);
      const auto part = positions_of(batches_read(options, num_batches));
      seen.insert(seen.end(), part.begin(), part.end());
      const int64_t after = whole.sample_after(num_batches);
      ASSERT_EQ(after, std::min(std::ssize(seen), options.num_positions)) << what;
      if (!is_last) {
        options.first = after;
        seen.resize(static_cast<size_t>(after));  // at its end an epoch repeats samples, and no more follow
      }
    }
    expect_rest_of_epoch(seen, options, what);
    if (HasFatalFailure() || HasFailure()) return;
  }
  EXPECT_GT(num_inside, 10'000);
}

// With the same ranks and batch size, each rank's batches of a resumed epoch are those of the uninterrupted one.
TEST(EpochDivision, TheSameRanksGoOnWithTheSameBatches) {
  const auto batches_of_rank = [](const EpochDivision& division) {
    std::vector<Positions> result(static_cast<size_t>(division.num_batches()));
    for (size_t number = 0; number < result.size(); ++number) {
      const auto [first, size] = division.batch(static_cast<int64_t>(number));
      for (int64_t i = first; i < first + size; ++i) result[number].push_back(division.position(i));
    }
    return result;
  };
  for (const auto& [exact, drop_last] : {std::pair{false, false}, {true, false}, {false, true}}) {
    for (int64_t num_positions = 0; num_positions < 60; ++num_positions) {
      for (int64_t rank = 0; rank < 3; ++rank) {
        EpochDivisionOptions options{.num_positions = num_positions,
                                     .num_ranks = 3,
                                     .rank = rank,
                                     .batch_size = 4,
                                     .exact = exact,
                                     .drop_last = drop_last};
        const auto whole = batches_of_rank(EpochDivision(options));
        for (int64_t stop = 0; stop < std::ssize(whole); ++stop) {
          auto resumed = options;
          resumed.first = EpochDivision(options).sample_after(stop);
          EXPECT_EQ(batches_of_rank(EpochDivision(resumed)), std::vector(whole.begin() + stop, whole.end()))
              << division_text(resumed) << ", rank " << rank;
        }
      }
    }
  }
}

TEST(EpochDivision, OfOneRankIsACutOfItsSamples) {
  const EpochDivision division({.num_positions = 10, .batch_size = 4});
  EXPECT_EQ(division.num_batches(), 3);
  EXPECT_EQ(division.batch(2), std::pair(int64_t{8}, int64_t{2}));
  EXPECT_EQ(EpochDivision({.num_positions = 10, .batch_size = 4, .drop_last = true}).num_batches(), 2);
  EXPECT_EQ(EpochDivision({.num_positions = 10, .first = 10, .batch_size = 4}).num_batches(), 0);
}

TEST(DistributedSampler, DividesTheRestOfAnEpoch) {
  const auto rest_of = [](int64_t rank, int64_t first) {
    const DistributedSampler sampler({.num_samples = 10, .num_ranks = 3, .rank = rank, .shuffle = false});
    return sampler.indices(0, first);
  };
  EXPECT_THAT(rest_of(2, 5), ElementsAre(5, 8));  // number 5 is rank 2's, as in an epoch of these ranks
  EXPECT_THAT(rest_of(0, 5), ElementsAre(6, 9));
  EXPECT_THAT(rest_of(1, 5), ElementsAre(7, 0));  // repeats the order from its beginning
  EXPECT_THAT(rest_of(2, 10), ElementsAre());
}

TEST(LoaderPosition, IsATextThatOlderCheckpointsHaveInAnotherForm) {
  const auto read = [](const std::string& text) {
    LoaderPosition position;
    read_text("loader", text, position);
    return position;
  };
  EXPECT_EQ(text_of({.epoch = 3, .sample = 4352}), "epoch 3, sample 4352");
  EXPECT_EQ(read("epoch 3, sample 4352").sample, 4352);
  EXPECT_EQ(read("epoch 3, sample 4352").first_item, -1);
  EXPECT_EQ(text_of(read("epoch 3 from item 9000, sample 12")), "epoch 3 from item 9000, sample 12");
  const auto old = read("epoch 3, batch 17 of 256 samples");
  EXPECT_EQ(old.epoch, 3);
  EXPECT_EQ(old.sample, 4352);
  EXPECT_EQ(old.samples_per_batch, 256);
  for (const char* text : {"", "epoch", "epoch 3, sample", "epoch 3, sample 4 ", "epoch 3, batch 2 of 4 samples.",
                           "epoch 3, batch 5000000000000 of 5000000000000 samples", "epoch 3 from item, sample 4"}) {
    EXPECT_THAT(test::message_of([&] { read(text); }, ErrorCode::kDataLoss), HasSubstr("not a position of a loader"))
        << text;
  }
}

}  // namespace
}  // namespace yoke::train
