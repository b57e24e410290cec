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
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace yoke {
namespace {

using test::Command;
using test::CommandOptions;
using test::TemporaryFolder;
using testing::HasSubstr;
using testing::Not;

constexpr int kNumRanks = 4;
using Words = std::vector<std::string>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// A training under `yoke run`.
class Job {
 public:
  Job(const Words& options, const Words& program, int num_ranks = kNumRanks)
      : command_(options_of(options, program, num_ranks)) {}

  /// The last pid that each rank has printed.
  std::map<int, pid_t> pids() const {
    std::map<int, pid_t> pids;
    for (const auto& line : lines_of(command_.out())) {
      int rank = 0, pid = 0;
      if (std::sscanf(line.c_str(), "[%d] pid %d", &rank, &pid) == 2) pids[rank] = pid;
    }
    return pids;
  }
  /// The number of the last line that tells of a step, and how many there are.
  std::pair<int, int> steps() const {
    std::pair<int, int> result;
    for (const auto& line : lines_of(command_.out())) {
      if (std::sscanf(line.c_str(), "[0] step %d", &result.first) == 1) ++result.second;
    }
    return result;
  }
  bool wait_for_ranks() {
    return command_.wait_until([&] { return pids().size() == kNumRanks && steps().second > 0; });
  }
  /// Waits for so many further lines about steps.
  bool wait_for_steps(int count) {
    const auto wanted = steps().second + count;
    return command_.wait_until([&] { return steps().second >= wanted; });
  }
  /// Waits until the rank is another process.
  bool wait_for_other(int rank, pid_t than) {
    return command_.wait_until([&] { return pids()[rank] != than; });
  }
  Command& command() { return command_; }

 private:
  static CommandOptions options_of(const Words& options, const Words& program, int num_ranks) {
    Words argv = {YOKE_COMMAND, "run", "-n", std::to_string(num_ranks)};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.emplace_back("--");
    argv.insert(argv.end(), program.begin(), program.end());
    return {.argv = argv, .environment = {{"YOKE_DEVICE", "cpu"}, {"OMP_NUM_THREADS", "1"}}};
  }
  Command command_;
};

Words program(const std::string& mode, const TemporaryFolder& folder, int num_steps, const std::string& parallel) {
  return {YOKE_REPLACE_PROGRAM, mode, folder.path(), std::to_string(num_steps), parallel};
}

std::vector<std::string> final_states(const TemporaryFolder& folder) {
  std::vector<std::string> states;
  for (int rank = 0; rank < kNumRanks; ++rank)
    states.push_back(test::slurp(folder.path("final-" + std::to_string(rank))));
  return states;
}

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

class Replace : public testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {
 protected:
  static Words preload(const std::string& how) { return how == "preloaded" ? Words{"--preload"} : Words{}; }
};

TEST_P(Replace, RandomKillsLeaveTheSameBits) {
  const auto& [mode, parallel, how] = GetParam();
  if (how == "two_hosts" && Command({.argv = {"unshare", "--uts", "true"}}).wait().exit_code != 0) {
    GTEST_SKIP() << "this user may make no UTS namespace";
  }
  const bool is_long = std::getenv("YOKE_LONG") != nullptr;
  const int num_kills = is_long ? (how == "preloaded" ? 1000 : 100) : (how == "preloaded" ? 5 : 2);
  const int num_steps = is_long ? num_kills * 5 : 40;

  const TemporaryFolder expected;
  auto options = preload(how);
  const auto training = [&](const TemporaryFolder& folder) {
    auto words = program(mode, folder, num_steps, parallel);
    if (how == "two_hosts") words.insert(words.begin(), YOKE_ON_TWO_HOSTS);
    return words;
  };
  const auto undisturbed = Job(options, training(expected)).command().wait();
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.err;

  const TemporaryFolder folder;
  options.insert(options.end(), {"--replace", std::to_string(num_kills)});
  Job job(options, training(folder));
  ASSERT_TRUE(job.wait_for_ranks()) << job.command().err();
  const auto launcher = job.command().pid();
  std::mt19937 random(static_cast<unsigned>(num_kills));
  std::set<int> lost;  // since all ranks have completed a step
  for (int kill_number = 0; kill_number < num_kills && job.steps().first < num_steps - 5; ++kill_number) {
    const int rank = static_cast<int>(random() % kNumRanks);
    if (!lost.contains(rank) && lost.size() == kNumRanks - 1) {  // a rank that has the state must be left
      ASSERT_TRUE(job.wait_for_steps(2)) << job.command().out() << job.command().err();
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
    ASSERT_TRUE(job.wait_for_steps(num_further)) << job.command().out() << job.command().err();
    if (num_further == 2) lost.clear();  // the first of them may have been printed while a rank was receiving the state
  }
  const auto result = job.command().wait(test::milliseconds(is_long ? 500'000 : 60'000));
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("starting it again, replacement 1 of"));
  EXPECT_EQ(final_states(folder), final_states(expected));
  for (const auto& state : final_states(folder)) EXPECT_GT(state.size(), 10'000u);
  if (mode != "loop") {
    EXPECT_EQ(figures(folder), figures(expected));
    auto of_all = losses(expected);
    for (const auto& [step, loss] : losses(folder)) EXPECT_EQ(loss, of_all[step]) << step;
  }
  EXPECT_TRUE(test::children_of(launcher).empty());
}

const auto name_of = [](const auto& one) {
  return std::get<0>(one.param) + "_" + std::get<1>(one.param) + "_" + std::get<2>(one.param);
};
INSTANTIATE_TEST_SUITE_P(All, Replace,
                         testing::Combine(testing::Values("run", "loop"), testing::Values("ddp", "zero1", "fsdp"),
                                          testing::Values("preloaded")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Accumulating, Replace,
                         testing::Combine(testing::Values("accumulate"), testing::Values("ddp", "fsdp"),
                                          testing::Values("preloaded")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OnTwoHosts, Replace,
                         testing::Combine(testing::Values("run", "loop"), testing::Values("ddp", "zero1", "fsdp"),
                                          testing::Values("two_hosts")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(WithoutPreload, Replace,
                         testing::Combine(testing::Values("run"), testing::Values("ddp"), testing::Values("started")),
                         name_of);

}  // namespace
}  // namespace yoke
