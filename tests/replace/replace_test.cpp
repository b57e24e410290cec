// Kills ranks of a training at random moments, under `yoke run --replace`.
//
// Oracle: the same training without a kill. All that it has in the end has the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/replace/training.h"
#include "tests/support/command.h"

namespace yoke {
namespace {

using test::lines_of;
using test::program;
using test::TemporaryFolder;
using test::Words;
using testing::HasSubstr;
using testing::Not;

constexpr int kNumRanks = 4;

/// A training on this host.
class Job : public test::Training {
 public:
  Job(const Words& options, const Words& program) : Training(command_of(options, program), kNumRanks) {}

 private:
  static test::CommandOptions command_of(const Words& options, const Words& program) {
    Words argv = {YOKE_COMMAND, "run", "-n", std::to_string(kNumRanks)};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.emplace_back("--");
    argv.insert(argv.end(), program.begin(), program.end());
    return {.argv = argv};
  }
};

std::vector<std::string> final_states(const TemporaryFolder& folder) { return test::final_states(folder, kNumRanks); }

/// metrics.csv, without the columns that tell of time.
std::vector<std::string> figures(const TemporaryFolder& folder) {
  std::vector<std::string> figures;
  for (const auto& line : lines_of(test::slurp(folder.path("run/metrics.csv")))) {
    auto cut = line;
    for (int i = 0; i < 2; ++i) cut.resize(std::min(cut.rfind(','), cut.size()));
    figures.push_back(cut);
  }
  return figures;
}

/// The loss of each step in steps.jsonl, as text.
std::map<std::string, std::string> losses(const TemporaryFolder& folder) {
  std::map<std::string, std::string> losses;
  for (const auto& line : lines_of(test::slurp(folder.path("run/steps.jsonl")))) {
    const auto loss = line.find("\"loss\"");
    if (loss == line.npos) continue;  // of an evaluation
    const auto inserted = losses.emplace(line.substr(0, line.find(',')), line.substr(loss));
    EXPECT_TRUE(inserted.second) << "a step is there twice: " << line;
  }
  return losses;
}

// The others wait for a process that takes its place, and the launcher knows that there will be none.
TEST(Replaceable, ARankThatLeavesWithStatusZeroIsNamedAtOnce) {
  for (const std::string mode : {"run", "loop"}) {
    const TemporaryFolder folder;
    auto argv = Words{YOKE_COMMAND, "run", "-n", "3", "--replace", "2", "--"};
    for (const auto& word : program(mode, folder, 200, "ddp")) argv.push_back(word);
    const auto result = test::run({.argv = argv, .environment = {{"YOKE_DEVICE", "cpu"}, {"EXIT0", "1:15"}}});
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.exit_code, 75) << result.err;
    EXPECT_THAT(result.err, testing::ContainsRegex("yoke run: rank 1 .pid [0-9]+. had ended with status 0 too early, "
                                                   "after step 1[45] of its training, and is not replaced"))
        << result.err;
  }
}

class Replace : public testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {
 protected:
  static Words preload(const std::string& how) { return how == "preloaded" ? Words{"--preload"} : Words{}; }
};

TEST_P(Replace, RandomKillsLeaveTheSameBits) {
  const auto& [mode, parallel, how] = GetParam();
  const bool is_long = std::getenv("YOKE_LONG") != nullptr;
  const int num_kills = is_long ? (how == "preloaded" ? 1000 : 100) : (how == "preloaded" ? 3 : 2);
  const int num_steps = is_long ? num_kills * 5 : 40;

  const TemporaryFolder expected;
  auto options = preload(how);
  const auto undisturbed = Job(options, program(mode, expected, num_steps, parallel)).command().wait();
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.err;

  const TemporaryFolder folder;
  options.insert(options.end(), {"--replace", std::to_string(num_kills)});
  // It waits before its last step, so that it has not ended when a kill comes late on a busy machine.
  const int last_step = num_steps - 1;
  Job job(options, test::gated(program(mode, folder, num_steps, parallel), last_step, folder));
  const auto wait_for_steps = [&](int count) {
    const auto wanted = job.steps().second + count;
    return job.command().wait_until([&] {
      const auto [last, how_many] = job.steps();
      return how_many >= wanted || last >= last_step;
    });
  };
  ASSERT_TRUE(job.wait_for_ranks()) << job.command().err();
  // Only the third batch makes ranks wait for each other, and shows that all have kept a state.
  if (mode.starts_with("accumulat")) ASSERT_TRUE(wait_for_steps(3)) << job.command().err();
  const auto launcher = job.command().pid();
  std::mt19937 random(static_cast<unsigned>(num_kills));
  std::set<int> lost;  // since all ranks have completed a step
  int num_killed = 0;
  for (; num_killed == 0 || (num_killed < num_kills && job.steps().first < num_steps - 5); ++num_killed) {
    const int rank = static_cast<int>(random() % kNumRanks);
    if (!lost.contains(rank) && lost.size() == kNumRanks - 1) {  // a rank that has the state must be left
      ASSERT_TRUE(wait_for_steps(2)) << job.command().out() << job.command().err();
      lost.clear();
    }
    lost.insert(rank);
    const auto before = job.pids();
    usleep(random() % 3000);  // clock: any moment will do, and a random place in a step is wanted
    ASSERT_EQ(kill(before.at(rank), SIGKILL), 0) << job.command().out() << job.command().err();
    ASSERT_TRUE(job.wait_for_other(rank, before.at(rank))) << job.command().out() << job.command().err();
    for (const auto& [other, pid] : before) {
      if (other == rank) continue;
      EXPECT_EQ(job.pids()[other], pid) << "a survivor has another process";
    }
    const int num_further = static_cast<int>(random() % 3);
    ASSERT_TRUE(wait_for_steps(num_further)) << job.command().out() << job.command().err();
    if (num_further == 2) lost.clear();  // the first of them may have been printed while a rank was receiving the state
  }
  if (is_long) EXPECT_GE(num_killed, num_kills * 9 / 10) << "the training was over too early";
  test::let_run_to(num_steps + 1, folder);
  const auto result = job.command().wait(test::milliseconds(is_long ? 500'000 : 60'000));
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("starting it again, replacement 1 of"));
  EXPECT_EQ(final_states(folder), final_states(expected));
  for (const auto& state : final_states(folder)) EXPECT_GT(state.size(), 10'000u);
  if (!mode.ends_with("loop")) {
    EXPECT_EQ(figures(folder), figures(expected));
    auto of_all = losses(expected);
    for (const auto& [step, loss] : losses(folder)) EXPECT_EQ(loss, of_all[step]) << step;
  }
  EXPECT_TRUE(test::children_of(launcher).empty());
}

// The others are stopped, so that no new rank can get the state from them before they are lost too.
TEST(ReplaceAll, SaysThatNoRankIsLeftWithTheState) {
  const TemporaryFolder folder;
  Job job({"--replace", "9"}, program("run", folder, 1'000'000, "ddp"));
  ASSERT_TRUE(job.wait_for_ranks()) << job.command().err();
  ASSERT_TRUE(job.wait_for_steps(3)) << job.command().err();
  const auto before = job.pids();
  for (const auto& [rank, pid] : before) ASSERT_EQ(kill(pid, SIGSTOP), 0);
  for (const auto& [rank, pid] : before) {
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    if (rank + 1 < kNumRanks) ASSERT_TRUE(job.wait_for_other(rank, pid)) << job.command().err();
  }
  const auto result = job.command().wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("each rank has its own part, but none has what all ranks have alike"));
  EXPECT_THAT(result.err, Not(HasSubstr("there is no state of one step")));
}

// Two states are kept of each rank, so ranks that train apart may have none of the same step.
TEST(ReplaceAll, SaysThatTheRanksWereTooFarApart) {
  const TemporaryFolder folder;
  Job job({"--replace", "9"}, program("apart", folder, 0, "ddp"));
  ASSERT_TRUE(job.command().wait_until([&] { return job.pids().size() == kNumRanks; })) << job.command().err();
  ASSERT_EQ(kill(job.pids()[3], SIGKILL), 0);
  const auto result = job.command().wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("rank 0: after step 8 and 9"));
  EXPECT_THAT(result.err, HasSubstr("rank 3: after step 38 and 39"));
  EXPECT_THAT(result.err, HasSubstr("each rank keeps its last two states, and these ranks were further apart"));
  EXPECT_THAT(result.err, Not(HasSubstr("before the first step")));
}

// Ranks as processes, each with a generator of its own for the dropout.
TEST(Recorded, RanksHaveTheBitsOfTheStep) {
  const TemporaryFolder expected, folder;
  for (const auto& [how, of_how] : {std::pair("ddp", &expected), std::pair("recorded", &folder)}) {
    const auto result = Job({}, program("loop", *of_how, 40, how)).command().wait();
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("Recorded: ")));
    for (int rank = 0; rank < kNumRanks && how == std::string("recorded"); ++rank) {
      EXPECT_THAT(result.out, HasSubstr("[" + std::to_string(rank) + "] replays 37"));
    }
  }
  EXPECT_EQ(final_states(folder), final_states(expected));
}

const auto name_of = [](const auto& one) {
  return std::get<0>(one.param) + "_" + std::get<1>(one.param) + "_" + std::get<2>(one.param);
};
INSTANTIATE_TEST_SUITE_P(All, Replace,
                         testing::Combine(testing::Values("run", "loop"),
                                          testing::Values("ddp", "recorded", "zero1", "fsdp"),
                                          testing::Values("preloaded")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Accumulating, Replace,
                         testing::Combine(testing::Values("accumulate", "accumulating_loop"),
                                          testing::Values("ddp", "fsdp"), testing::Values("preloaded")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(InPhases, Replace,
                         testing::Combine(testing::Values("run"), testing::Values("phases"),
                                          testing::Values("preloaded")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(WithoutPreload, Replace,
                         testing::Combine(testing::Values("run"), testing::Values("ddp"), testing::Values("started")),
                         name_of);

}  // namespace
}  // namespace yoke
