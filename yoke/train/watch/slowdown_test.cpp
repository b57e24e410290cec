#include "yoke/train/watch/detail/slowdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace yoke::train::detail {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSteps = 8;  // in a window
using Ranks = std::vector<std::vector<PhaseTimes>>;

/// Ranks that take as long as each other, 50 ms a step: data, forward, backward, wait, optimizer, other.
Ranks equal(size_t num_ranks, size_t num_windows, PhaseTimes of_step = {{1, 15, 25, 2, 5, 2}}) {
  for (auto& time : of_step) time *= kSteps * kMs;
  return Ranks(num_ranks, std::vector<PhaseTimes>(num_windows, of_step));
}

/// From window `first` on, `rank` takes `ms` longer in `phase`, and the others wait.
void delay(Ranks& ranks, size_t rank, Phase phase, int64_t ms, size_t first = 0) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (size_t w = first; w < ranks[r].size(); ++w) {
      ranks[r][w][static_cast<size_t>(r == rank ? phase : Phase::kWait)] += ms * kSteps * kMs;
    }
  }
}

std::string text_of(const Ranks& ranks, int64_t first_step = 1) {
  const auto found = find_slowdown(ranks, kSteps, first_step);
  return found ? to_text(*found) : "";
}

TEST(Slowdown, NamesTheRankForWhichTheOthersWaitThePhaseAndTheFirstStep) {
  for (const size_t num_ranks : {2, 3, 8}) {
    auto ranks = equal(num_ranks, 40);
    EXPECT_EQ(text_of(ranks), "");
    delay(ranks, 1, Phase::kBackward, 12, 10);
    EXPECT_EQ(
        text_of(ranks, 4001),
        "rank 1 is late by 12 ms of each step of 62 ms (19 %) since step 4081, in backward; the others wait for it");
  }
}

TEST(Slowdown, KnowsEachPhase) {
  using testing::HasSubstr;
  const std::pair<Phase, const char*> phases[] = {{Phase::kData, "waiting for its data"},
                                                  {Phase::kForward, "in forward"},
                                                  {Phase::kOptimizer, "the optimizer's step"},
                                                  {Phase::kOther, "after the optimizer's step, as in an evaluation"}};
  for (const auto& [phase, words] : phases) {
    auto ranks = equal(4, 8);
    delay(ranks, 3, phase, 30);
    EXPECT_THAT(text_of(ranks), HasSubstr(words));
    EXPECT_THAT(text_of(ranks), HasSubstr("rank 3 is late by 30 ms of each step of 80 ms (38 %) since step 1,"));
  }
}

TEST(Slowdown, IsNotSaidOfASmallDelayOrOfOneThatHasEnded) {
  auto ranks = equal(4, 40);
  delay(ranks, 2, Phase::kForward, 4);
  EXPECT_EQ(text_of(ranks), "") << "8 % of a step";
  ranks = equal(4, 40);
  delay(ranks, 2, Phase::kForward, 20);
  for (auto& windows : ranks) std::fill(windows.end() - 8, windows.end(), equal(1, 1)[0][0]);
  EXPECT_EQ(text_of(ranks), "");
}

// In each window another rank is late. Now and then it is the same one for long enough to be named, mostly of two
// ranks.
TEST(Slowdown, ANoisyMachineHardlyHasALateRank) {
  std::mt19937 random(1);
  int num_named = 0;
  for (int i = 0; i < 200; ++i) {
    const size_t num_ranks = 2 + random() % 7, num_windows = 8 + random() % 40;
    auto ranks = equal(num_ranks, num_windows);
    for (size_t w = 0; w < num_windows; ++w) {
      auto window = equal(num_ranks, 1);
      const size_t late = random() % num_ranks;
      delay(window, late, Phase::kBackward, static_cast<int64_t>(random() % 40));
      for (size_t r = 0; r < num_ranks; ++r) ranks[r][w] = window[r][0];
    }
    const auto found = find_slowdown(ranks, kSteps, 1);
    if (found && found->cause == Slowdown::Cause::kLateRank) ++num_named;
  }
  EXPECT_LE(num_named, 4);
}

// The same of rare delays in what follows the step, of which some are long.
TEST(Slowdown, RareDelaysOfANoisyMachineHardlyMakeALateRank) {
  std::mt19937 random(1);
  int num_named = 0;
  for (int i = 0; i < 200; ++i) {
    const size_t num_ranks = 2 + random() % 3, num_windows = 16 + random() % 40;
    auto ranks = equal(num_ranks, num_windows, {{1, 2, 3, 1, 1, 0}});
    for (size_t w = 0; w < num_windows; ++w) {
      if (random() % 3 != 0) continue;
      auto window = equal(num_ranks, 1, {{1, 2, 3, 1, 1, 0}});
      delay(window, random() % num_ranks, Phase::kOther, static_cast<int64_t>(random() % 8 == 0 ? 50 : random() % 8));
      for (size_t r = 0; r < num_ranks; ++r) ranks[r][w] = window[r][0];
    }
    const auto found = find_slowdown(ranks, kSteps, 1);
    if (found && found->cause == Slowdown::Cause::kLateRank) ++num_named;
  }
  EXPECT_LE(num_named, 10);
}

TEST(Slowdown, ARankWithoutARankThatWaitsIsNotLate) {
  auto ranks = equal(3, 20);
  for (auto& window : ranks[1]) window[1] += 20 * kSteps * kMs;  // as if waits were not seen, as on a GPU
  EXPECT_EQ(text_of(ranks), "");
}

// All loaders need 17 ms for a batch. The slowest one by a hair makes its rank wait; while the others wait for that
// rank, their batches become ready.
TEST(Slowdown, IfAllLoadersAreSlowNoRankIsLateAndAllOfTheWaitIsForData) {
  for (const size_t num_ranks : {2, 3, 4}) {
    auto ranks = equal(num_ranks, 20, {{0, 1, 1, 0, 1, 2}});
    delay(ranks, 1, Phase::kData, 13);
    EXPECT_EQ(find_slowdown(ranks, kSteps, 1)->cause, Slowdown::Cause::kLateRank) << "the others' loaders are fast";
    for (auto& windows : ranks) {
      for (auto& window : windows) window.loading_ns = 17 * kSteps * kMs;
    }
    EXPECT_THAT(text_of(ranks), testing::StartsWith("13 ms of each step of 18 ms (72 %) pass while ranks wait for "));
    auto turns = ranks;  // in each window another rank waits
    for (size_t w = 0; w < 20; ++w) std::swap(turns[1][w], turns[w % num_ranks][w]);
    EXPECT_EQ(text_of(turns), text_of(ranks));
  }
}

TEST(Slowdown, ARankWhoseLoaderIsSlowerThanTheOthersIsLateByTheDifference) {
  auto ranks = equal(3, 20, {{0, 1, 1, 0, 1, 2}});
  delay(ranks, 1, Phase::kData, 13);
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (auto& window : ranks[r]) window.loading_ns = (r == 1 ? 18 : 12) * kSteps * kMs;
  }
  EXPECT_EQ(text_of(ranks),
            "rank 1 is late by 6.0 ms of each step of 18 ms (33 %) since step 1, waiting for its data; the others wait "
            "for it");
}

TEST(Slowdown, NamesDataAndTheExchangeThatAllWaitFor) {
  EXPECT_EQ(text_of(equal(1, 8, {{12, 15, 25, 0, 5, 3}})),
            "12 ms of each step of 60 ms (20 %) pass while ranks wait for their data: give the loader more workers, or "
            "cheaper samples");
  EXPECT_EQ(
      text_of(equal(4, 8, {{1, 4, 6, 7, 2, 0}})),
      "7.0 ms of each step of 20 ms (35 %) pass until the gradients are averaged, although no rank is late: the "
      "exchange is slow for this model, so average less often or send less; or processors have other work, too (`yoke "
      "ps`)");
  EXPECT_EQ(text_of(equal(1, 8, {{1, 4, 6, 7, 2, 0}})), "") << "one rank exchanges nothing";
}

// Ranks wait for each other in turns, for an eighth of the time each, and for far longer now and then.
TEST(Slowdown, WaitsOnABusyMachineAreNotTheExchange) {
  auto ranks = equal(2, 24, {{1, 5, 8, 2, 2, 1}});
  for (size_t w = 0; w < 24; w += 3) {
    for (auto& windows : ranks) windows[w][static_cast<size_t>(Phase::kWait)] += 12 * kSteps * kMs;
  }
  EXPECT_EQ(text_of(ranks), "") << "the mean of the waits is 26 %";
}

TEST(Slowdown, NamesWhatAllRanksDoAfterTheStep) {
  const auto ranks = equal(3, 20, {{0, 1, 1, 0, 1, 8}});
  EXPECT_EQ(text_of(ranks),
            "8.0 ms of each step of 11 ms (73 %) pass after the optimizer's step, as in an evaluation, a checkpoint or "
            "output within the epoch: do it less often, or make it cheaper");
  EXPECT_EQ(find_slowdown(ranks, kSteps, 1)->cause, Slowdown::Cause::kRest);
  EXPECT_EQ(find_slowdown(ranks, kSteps, 1, /*has_device=*/true), std::nullopt) << "it may wait for the device";
  auto short_steps = ranks;
  for (auto& windows : short_steps) {
    for (auto& window : windows) {
      for (auto& time : window) time /= 100;
    }
  }
  EXPECT_EQ(text_of(short_steps), "") << "0.08 ms";
  EXPECT_THAT(text_of(equal(2, 20, {{6, 1, 1, 0, 1, 3}})), testing::HasSubstr("wait for their data")) << "the largest";
  EXPECT_THAT(text_of(equal(2, 20, {{3, 1, 1, 0, 1, 6}})), testing::HasSubstr("after the optimizer's step"));
  auto bound = equal(2, 20, {{3, 1, 1, 0, 1, 6}});
  for (auto& windows : bound) {
    for (auto& window : windows) window.loading_ns = 12 * kSteps * kMs;
  }
  EXPECT_THAT(text_of(bound), testing::HasSubstr("wait for their data")) << "without the rest they wait longer";
}

// Every twenty steps a rank evaluates for longer than the others.
TEST(Slowdown, NamesTheRankThatIsLateInWhatIsDoneEveryNSteps) {
  auto ranks = equal(3, 23, {{0, 1, 1, 0, 1, 0}});
  for (size_t step = 20; step < 23 * kSteps; step += 20) {
    for (size_t r = 0; r < 3; ++r) {
      ranks[r][step / kSteps][static_cast<size_t>(r == 1 ? Phase::kOther : Phase::kWait)] += 160 * kMs;
    }
  }
  EXPECT_THAT(text_of(ranks), testing::StartsWith("rank 1 is late by "));
  EXPECT_THAT(text_of(ranks), testing::HasSubstr("after the optimizer's step, as in an evaluation"));
  auto noisy = ranks;  // in the other windows another rank is late, by little
  for (size_t w = 0; w < 23; w += 2) {
    auto window = equal(3, 1, {{0, 1, 1, 0, 1, 0}});
    delay(window, w / 2 % 3, Phase::kForward, 1);
    if (noisy[1][w][5] > 0) continue;
    for (size_t r = 0; r < 3; ++r) noisy[r][w] = window[r][0];
  }
  EXPECT_THAT(text_of(noisy), testing::StartsWith("rank 1 is late by "));
  auto ended = ranks;
  for (auto& windows : ended) windows.insert(windows.end(), 8, equal(1, 1, {{0, 1, 1, 0, 1, 0}})[0][0]);
  EXPECT_EQ(text_of(ended), "");
  auto little = ranks;
  for (auto& windows : little) {
    for (auto& window : windows) window[static_cast<size_t>(Phase::kForward)] += 80 * kSteps * kMs;
  }
  EXPECT_EQ(text_of(little), "") << "8 of 91 ms";
}

TEST(Slowdown, NeedsEightWindowsOfEachRank) {
  auto ranks = equal(2, 7);
  delay(ranks, 1, Phase::kForward, 50);
  EXPECT_EQ(text_of(ranks), "");
  EXPECT_EQ(find_slowdown({}, kSteps, 1), std::nullopt);
  ranks = equal(2, 9);
  ranks[1].pop_back();
  EXPECT_EQ(find_slowdown(ranks, kSteps, 1), std::nullopt);
}

TEST(Slowdown, IsSaidAgainOnlyIfItIsNews) {
  Slowdown one{.rank = 1, .phase = Phase::kForward, .lost_ms = 10, .step_ms = 50, .since = 1};
  EXPECT_TRUE(is_news(std::nullopt, one));
  EXPECT_FALSE(is_news(one, one));
  auto other = one;
  other.lost_ms = 16;
  EXPECT_TRUE(is_news(one, other));
  EXPECT_FALSE(is_news(other, one));
  other = one;
  other.rank = 0;
  EXPECT_TRUE(is_news(one, other));
  other = one;
  other.phase = Phase::kData;
  EXPECT_TRUE(is_news(one, other));
}

}  // namespace
}  // namespace yoke::train::detail
