#include "yoke/tune/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <set>

namespace yoke::tune {
namespace {

constexpr int64_t kMiB = 1 << 20;

/// A machine on which everything is known.
struct Machine {
  std::function<double(double batch)> seconds = [](double batch) { return 1e-3 + 1e-5 * batch; };
  std::function<double(double batch)> mib = [](double batch) { return 300 + 0.1 * batch; };
  double worst_case = 1;  ///< Times as much memory for the longest samples.
  int64_t limit_mib = 1 << 20;
  int64_t num_ranks = 1;
  double noise = 0;         ///< Relative, one standard deviation; runs are slower, never faster, than the truth.
  double late_failure = 0;  ///< The program fails from this batch on; 0: never.
  double wall_seconds = 3;
  uint64_t seed = 1;
};

struct Tuned {
  Answer answer;
  std::vector<Measurement> runs;
  int64_t num_out_of_memory = 0;
};

Measurement run(const Machine& machine, const Probe& probe, std::mt19937_64& random) {
  const auto batch = static_cast<double>(probe.batch);
  Measurement result{.batch = probe.batch, .has_worst_case = probe.has_worst_case};
  const double mib = machine.mib(batch) * (probe.has_worst_case ? machine.worst_case : 1);
  result.num_ranks = machine.num_ranks;
  result.wall_seconds = machine.wall_seconds;
  result.memory[0] = {static_cast<int64_t>(mib * kMiB), machine.limit_mib * kMiB};
  result.step_seconds =
      machine.seconds(batch) * (1 + std::abs(std::normal_distribution<double>(0, machine.noise + 1e-9)(random)));
  result.num_steps = 20;
  if (mib > static_cast<double>(machine.limit_mib)) result.outcome = Outcome::kOutOfMemory;
  if (machine.late_failure > 0 && batch >= machine.late_failure) {
    result.outcome = Outcome::kFailed;
    result.reason = "the program ended with status 3";
  }
  return result;
}

Tuned tune(const Machine& machine, const SearchOptions& options = {}) {
  Tuned result;
  std::mt19937_64 random(machine.seed);
  while (result.runs.size() < 100) {
    const auto decision = decide(options, result.runs);
    if (const auto* answer = std::get_if<Answer>(&decision)) {
      result.answer = *answer;
      break;
    }
    const auto& probe = std::get<Probe>(decision);
    EXPECT_GE(probe.batch, options.min);
    EXPECT_LE(probe.batch, options.max);
    EXPECT_EQ(probe.batch % options.multiple_of, 0);
    result.runs.push_back(run(machine, probe, random));
    result.num_out_of_memory += result.runs.back().outcome == Outcome::kOutOfMemory ? 1 : 0;
  }
  EXPECT_LT(result.runs.size(), 30U) << "this many runs take too long";
  return result;
}

double true_rate(const Machine& machine, int64_t batch) {
  return static_cast<double>(batch) / machine.seconds(static_cast<double>(batch));
}

/// The best rate of all sizes that the search might choose.
double best_rate(const Machine& machine, const SearchOptions& options = {}) {
  double best = 0;
  for (int64_t batch = options.min; batch <= options.max; ++batch) {
    if (round_down(batch, options.multiple_of) != batch) continue;
    const bool fits = machine.mib(static_cast<double>(batch)) * machine.worst_case <=
                      static_cast<double>(machine.limit_mib) * (1 - options.margin);
    if (fits && (machine.late_failure == 0 || static_cast<double>(batch) < machine.late_failure)) {
      best = std::max(best, true_rate(machine, batch));
    }
  }
  return best;
}

/// The answer is this close to an exhaustive sweep.
double share_of_best(const Machine& machine, const SearchOptions& options = {}) {
  const auto tuned = tune(machine, options);
  return tuned.answer.chosen ? true_rate(machine, tuned.answer.chosen->batch) / best_rate(machine, options) : 0;
}

TEST(TuneSearch, FindsTheKneeOfALinearMachineAndNotTheLargestThatFits) {
  const Machine machine;  // half of the best rate at 100, 98 % at 4,900
  const auto tuned = tune(machine);
  ASSERT_TRUE(tuned.answer.chosen);
  EXPECT_GE(tuned.answer.chosen->batch, 3072);
  EXPECT_LE(tuned.answer.chosen->batch, 8192);
  EXPECT_EQ(tuned.answer.bound, Bound::kNoGain);
  EXPECT_GE(share_of_best(machine), 0.95);
  ASSERT_TRUE(tuned.answer.time);
  EXPECT_NEAR(tuned.answer.time->fixed, 1e-3, 1e-5);
  EXPECT_NEAR(tuned.answer.time->per_sample, 1e-5, 1e-7);
  EXPECT_LE(tuned.runs.size(), 15U);
  EXPECT_FALSE(tuned.answer.is_ignored);
}

TEST(TuneSearch, IsWithinFivePercentOfASweepOnMachinesOfManyKinds) {
  const std::vector<std::pair<const char*, Machine>> machines = {
      {"linear", {}},
      {"no fixed cost", {.seconds = [](double b) { return 1e-5 * b; }}},
      {"large fixed cost", {.seconds = [](double b) { return 0.05 + 1e-5 * b; }}},
      {"cache: slower per sample above 300",
       {.seconds = [](double b) { return 1e-3 + 1e-5 * b + (b > 300 ? 1e-5 * (b - 300) : 0); }}},
      {"fastest in the middle", {.seconds = [](double b) { return 2e-3 + 1e-5 * b + 1e-8 * b * b; }}},
      {"fastest at 16", {.seconds = [](double b) { return 1e-4 + 1e-5 * b + 1e-6 * b * b; }}},
      {"waves of 64", {.seconds = [](double b) { return 1e-3 + 1e-3 * std::ceil(b / 64); }}},
      {"memory cliff", {.mib = [](double b) { return 300 + 2 * b; }, .limit_mib = 1000}},
      {"memory cliff between powers", {.mib = [](double b) { return 100 + b; }, .limit_mib = 900}},
  };
  for (const auto& [what, base] : machines) {
    for (const double noise : {0.0, 0.01, 0.03}) {
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        auto machine = base;
        machine.noise = noise;
        machine.seed = seed;
        EXPECT_GE(share_of_best(machine), 0.95) << what << ", noise " << noise << ", seed " << seed;
      }
    }
  }
}

TEST(TuneSearch, IsCloseOnAMachineThatIsSlowForAWhile) {
  // Spells in which every run takes 60 % longer, as beside other work.
  double total = 0;
  constexpr int kSeeds = 40;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Machine machine{.seconds = [](double b) { return 1e-3 + 5e-6 * b; }, .noise = 0.01};
    std::mt19937_64 random(seed);
    std::vector<Measurement> runs;
    bool is_slow = false;
    while (true) {
      const auto decision = decide({}, runs);
      if (const auto* answer = std::get_if<Answer>(&decision)) {
        ASSERT_TRUE(answer->chosen);
        const double share = true_rate(machine, answer->chosen->batch) / best_rate(machine);
        EXPECT_GE(share, 0.7) << seed;
        total += share;
        break;
      }
      ASSERT_LT(runs.size(), 50U);
      if (std::uniform_real_distribution<>()(random) < 0.3) is_slow = !is_slow;
      runs.push_back(run(machine, std::get<Probe>(decision), random));
      runs.back().step_seconds *= is_slow ? 1.6 : 1;
    }
  }
  EXPECT_GE(total / kSeeds, 0.95);
}

TEST(TuneSearch, SaysThatTheMachineIsUnsteady) {
  std::mt19937_64 random(1);
  std::vector<Measurement> runs;
  std::set<int64_t> seen;
  while (true) {
    const auto decision = decide({}, runs);
    if (const auto* answer = std::get_if<Answer>(&decision)) {
      ASSERT_EQ(answer->warnings.size(), 1U);
      EXPECT_THAT(answer->warnings[0], testing::HasSubstr("uncertain"));
      break;
    }
    runs.push_back(run({}, std::get<Probe>(decision), random));
    if (!seen.insert(runs.back().batch).second) runs.back().step_seconds *= 1.3;
  }
  EXPECT_TRUE(tune({.noise = 0.01}).answer.warnings.empty());
}

TEST(TuneSearch, PrefersTheSmallestBatchWithinTheTolerance) {
  const Machine machine;
  const auto strict = tune(machine, {.tolerance = 0.001}), loose = tune(machine, {.tolerance = 0.2});
  EXPECT_LT(loose.answer.chosen->batch, strict.answer.chosen->batch);
  EXPECT_GE(true_rate(machine, loose.answer.chosen->batch), 0.79 * best_rate(machine));
  EXPECT_GE(loose.answer.fastest->batch, loose.answer.chosen->batch);
}

TEST(TuneSearch, PredictsMemoryAndDoesNotHitTheLimit) {
  for (const double fixed_mib : {50.0, 300.0, 900.0}) {
    for (const double mib_per_sample : {0.01, 0.5, 3.0, 20.0}) {
      for (const int64_t limit_mib : {1000, 3333, 20000}) {
        const Machine machine{.seconds = [](double b) { return 1 + 1e-5 * b; },  // larger is always faster
                              .mib = [=](double b) { return fixed_mib + mib_per_sample * b; },
                              .limit_mib = limit_mib};
        const auto tuned = tune(machine);
        const bool first_fits = fixed_mib + 32 * mib_per_sample <= static_cast<double>(limit_mib);
        if (first_fits) {
          EXPECT_EQ(tuned.num_out_of_memory, 0) << fixed_mib << " + " << mib_per_sample << " B of " << limit_mib;
        }
        if (fixed_mib + mib_per_sample > 0.9 * static_cast<double>(limit_mib)) {
          EXPECT_FALSE(tuned.answer.chosen);
          continue;
        }
        ASSERT_TRUE(tuned.answer.chosen) << fixed_mib << " + " << mib_per_sample << " B of " << limit_mib;
        EXPECT_LE(tuned.answer.chosen->memory[0].peak_bytes, 0.9 * static_cast<double>(limit_mib * kMiB));
        EXPECT_GE(share_of_best(machine), 0.75)
            << fixed_mib << " + " << mib_per_sample << " B of " << limit_mib << ": " << tuned.answer.chosen->batch;
      }
    }
  }
}

TEST(TuneSearch, LearnsFromMemoryThatRunsOutAgainstThePrediction) {
  const Machine machine{.seconds = [](double b) { return 1 + 1e-5 * b; },
                        .mib = [](double b) { return b < 1000 ? 100 + 0.1 * b : 5000; },
                        .limit_mib = 2000};
  const auto tuned = tune(machine);
  ASSERT_TRUE(tuned.answer.chosen);
  EXPECT_GE(tuned.num_out_of_memory, 1);
  EXPECT_LE(tuned.num_out_of_memory, 2);
  EXPECT_GE(tuned.answer.chosen->batch, 512);
  EXPECT_LT(tuned.answer.chosen->batch, 1000);
  EXPECT_EQ(tuned.answer.bound, Bound::kMemory);
}

TEST(TuneSearch, GoesBelowItsFirstSizeIfThatDoesNotFit) {
  const Machine machine{.mib = [](double b) { return 100 + 50 * b; }, .limit_mib = 600};
  const auto tuned = tune(machine);
  ASSERT_TRUE(tuned.answer.chosen);
  EXPECT_EQ(tuned.answer.chosen->batch, 8);
  EXPECT_EQ(tuned.answer.bound, Bound::kMemory);
}

TEST(TuneSearch, LearnsFromALittleLargerSizeIfNoSmallerOneIsAllowed) {
  const Machine machine{.seconds = [](double b) { return 1 + 1e-5 * b; },
                        .mib = [](double b) { return 540 + 0.1 * b; },
                        .limit_mib = 740};
  const auto tuned = tune(machine, {.min = 256});
  ASSERT_TRUE(tuned.answer.chosen);
  EXPECT_EQ(tuned.answer.chosen->batch, 1024);
  EXPECT_EQ(tuned.num_out_of_memory, 0);
  EXPECT_EQ(tuned.answer.bound, Bound::kMemory);
}

TEST(TuneSearch, NothingFits) {
  const auto tuned = tune({.mib = [](double) { return 2000; }, .limit_mib = 1000});
  EXPECT_FALSE(tuned.answer.chosen);
  EXPECT_EQ(tuned.answer.bound, Bound::kMemory);
  EXPECT_EQ(tuned.runs.back().batch, 1);
  EXPECT_THAT(tuned.answer.problem, testing::HasSubstr("not even 1"));
}

TEST(TuneSearch, AFailureOfTheFirstRunEndsTheSearch) {
  const auto tuned = tune({.late_failure = 1});
  EXPECT_EQ(tuned.runs.size(), 1U);
  EXPECT_FALSE(tuned.answer.chosen);
  EXPECT_EQ(tuned.answer.problem, "the program ended with status 3");
}

TEST(TuneSearch, AFailureOfLargeBatchesIsTheirBound) {
  const Machine machine{.late_failure = 700};
  const auto tuned = tune(machine);
  ASSERT_TRUE(tuned.answer.chosen);
  EXPECT_EQ(tuned.answer.bound, Bound::kFailure);
  EXPECT_GE(share_of_best(machine), 0.95);
}

TEST(TuneSearch, OneRandomFailureDoesNotEndTheSearch) {
  const Machine machine;
  std::mt19937_64 random(1);
  std::vector<Measurement> runs;
  Answer answer;
  while (true) {
    const auto decision = decide({}, runs);
    if (const auto* end = std::get_if<Answer>(&decision)) {
      answer = *end;
      break;
    }
    runs.push_back(run(machine, std::get<Probe>(decision), random));
    if (runs.size() == 3) runs.back().outcome = Outcome::kFailed;
  }
  ASSERT_TRUE(answer.chosen);
  EXPECT_EQ(answer.chosen->batch, tune(machine).answer.chosen->batch);
  EXPECT_EQ(answer.warnings.size(), 1U) << "the user learns of it";
}

TEST(TuneSearch, SaysThatTheBatchSizeIsIgnored) {
  const auto tuned = tune({.seconds = [](double) { return 0.01; }, .mib = [](double) { return 300; }});
  EXPECT_TRUE(tuned.answer.is_ignored);
  EXPECT_LE(tuned.runs.size(), 8U) << "and does not go on up to --max";
  EXPECT_FALSE(tune({.seconds = [](double) { return 0.01; }}).answer.is_ignored) << "memory tells that it is used";
}

TEST(TuneSearch, StaysWithinTheBoundsOfTheOptions) {
  EXPECT_EQ(tune({}, {.max = 1}).answer.chosen->batch, 1);
  EXPECT_EQ(tune({}, {.min = 48, .max = 48}).answer.chosen->batch, 48);
  EXPECT_EQ(tune({}, {.min = 1000}).runs.front().batch, 1000);
  EXPECT_EQ(tune({}, {.max = 512}).answer.bound, Bound::kMaximum);
  EXPECT_EQ(tune({}, {.max = 512}).answer.chosen->batch, 512);
  for (const auto& probe : tune({}, {.multiple_of = 24}).runs) EXPECT_EQ(probe.batch % 24, 0);
}

TEST(TuneSearch, AStepHasAtMostAllSamplesOfTheDataSet) {
  const auto tuned = tune({.num_ranks = 4}, {.num_samples = 2000});
  EXPECT_EQ(tuned.answer.bound, Bound::kDataSet);
  for (const auto& run : tuned.runs) EXPECT_LE(4 * run.batch, 2000);
}

TEST(TuneSearch, EndsWithTheBestSoFarWhenItsTimeIsOver) {
  const auto tuned = tune({.wall_seconds = 100}, {.budget_seconds = 350});
  EXPECT_EQ(tuned.runs.size(), 3U);
  EXPECT_EQ(tuned.answer.chosen->batch, 128);
  EXPECT_EQ(tuned.answer.bound, Bound::kBudget);
}

TEST(TuneSearch, LeavesRoomForTheWorstCase) {
  const Machine machine{.seconds = [](double b) { return 1 + 1e-5 * b; },
                        .mib = [](double b) { return 100 + b; },
                        .worst_case = 3,
                        .limit_mib = 3000};
  const auto tuned = tune(machine, {.uses_worst_case = true});
  ASSERT_TRUE(tuned.answer.chosen);
  EXPECT_LE(3 * machine.mib(static_cast<double>(tuned.answer.chosen->batch)), 0.9 * 3000);
  EXPECT_GE(tuned.answer.chosen->batch, 640);
  EXPECT_EQ(tuned.num_out_of_memory, 0);
  const auto is_checked = [&](const Measurement& run) {
    return run.has_worst_case && run.batch >= tuned.answer.chosen->batch;
  };
  EXPECT_TRUE(std::ranges::any_of(tuned.runs, is_checked));
  EXPECT_GT(tune(machine).answer.chosen->batch, 1000) << "without it, the answer would run out of memory";
}

TEST(TuneSearch, SizesArePowersOfTwoAndThreeBetween) {
  EXPECT_EQ(round_down(1, 1), 1);
  EXPECT_EQ(round_down(7, 1), 7);
  EXPECT_EQ(round_down(9, 1), 8);
  EXPECT_EQ(round_down(63, 1), 56);
  EXPECT_EQ(round_down(1000, 1), 896);
  EXPECT_EQ(round_down(1000, 100), 800);
  EXPECT_EQ(round_down(50, 64), 0);
  EXPECT_EQ(round_down(0, 1), 0);
}

TEST(TuneSearch, StopsWhereLargerBatchesHaveNoMoreSamples) {
  // The data set has 1,000 samples, and no batch has more.
  const Machine machine{.seconds = [](double batch) { return 1e-3 + 1e-5 * std::min(batch, 1000.0); }};
  const auto tuned = tune(machine);
  ASSERT_TRUE(tuned.answer.chosen);
  EXPECT_LE(tuned.answer.chosen->batch, 1024);
  EXPECT_GE(tuned.answer.chosen->batch, 512);
  EXPECT_EQ(tuned.answer.bound, Bound::kDataSet);
  EXPECT_THAT(tuned.answer.warnings, testing::Contains(testing::HasSubstr("--dataset-size")));
  for (const auto& measured : tuned.runs) EXPECT_LE(measured.batch, 4096);
}

TEST(TuneSearch, AConstantTimeOfSmallBatchesIsNotTheEndOfTheData) {
  const Machine machine{.seconds = [](double batch) { return std::max(1e-3, 1e-6 * batch); }};
  const auto tuned = tune(machine);
  EXPECT_GE(tuned.answer.chosen->batch, 768);
  EXPECT_THAT(tuned.answer.warnings, testing::Not(testing::Contains(testing::HasSubstr("--dataset-size"))));
}

TEST(TuneSearch, NamesTheMemoryThatIsShort) {
  const Machine machine{.limit_mib = 305};
  const auto tuned = tune(machine);
  EXPECT_FALSE(tuned.answer.chosen);
  EXPECT_EQ(tuned.answer.bound, Bound::kMemory);
  EXPECT_THAT(tuned.answer.problem, testing::HasSubstr("of the 305.0 MiB that are free on this host"));
}

}  // namespace
}  // namespace yoke::tune
