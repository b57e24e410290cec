// Ranks that fail at random: the last line of `yoke run` must begin with the one that broke the job. Only this test
// knows which one that is.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/command.h"

namespace yoke {
namespace {

using test::Command;
using testing::ContainsRegex;

constexpr int kNumRanks = 8;
/// Of the ranks' groups. Eight ranks need some seconds to join each other on two busy processors.
constexpr std::chrono::milliseconds kTimeout(20'000);

struct Failure {
  std::string kind;  ///< As of failing_rank.cpp; or "SIGKILL", "SIGSTOP": the test sends the signal, at any moment.
  std::string said;  ///< A regular expression for what the last line says of the rank.
};

const std::vector<Failure>& failures() {
  static const std::vector<Failure> all = {
      {"throw", "exited with code 70"},
      {"bad_alloc", "exited with code 70"},
      {"full_disk", "exited with code 70"},
      {"thread_throws", "was killed by SIGABRT"},
      {"segv", "was killed by SIGSEGV"},
      {"abort", "was killed by SIGABRT"},
      {"SIGKILL", "was killed by SIGKILL"},
      {"_exit3", "exited with code 3"},
      {"_exit0", "had ended with status 0 too early"},
      {"exit0", "had ended with status 0 too early"},
      {"oom", "was killed by SIGKILL.* for want of memory"},
      {"SIGSTOP", "had been stopped"},
      {"stop", "had been stopped"},
      {"loop", "had not entered .*; it was computing"},
      {"deadlock", "had not entered .*; it was waiting for something else"},
      {"kernel_sleep", "had waited in the kernel"},
      {"other_call", "was in another collective than the others"},
      {"other_size", "was in another collective than the others"},
      {"other_dtype", "was in another collective than the others"},
      {"alone", "was in another collective than the others"},
      {"message", "(waited for a message to or from rank|had not entered)"},
      {"shared", "(failed first|exited with code 75)"},
      {"skip", "(was in another collective than the others|exited with code 69)"},
  };
  return all;
}

/// A control group with little memory, for a process that joins it. There is none where groups cannot be made.
class SmallGroup {
 public:
  SmallGroup() {
    const auto name = fmt::format("yoke-culprit-{}", getpid());
    for (const auto& [mount, limit] :
         {std::pair("/sys/fs/cgroup/memory/", "memory.limit_in_bytes"), std::pair("/sys/fs/cgroup/", "memory.max")}) {
      std::error_code error;
      const auto folder = std::filesystem::path(mount) / name;
      if (!std::filesystem::create_directory(folder, error)) continue;
      if (std::filesystem::exists(folder / limit, error)) {
        folder_ = folder;
        std::ofstream(folder / limit) << "33554432";
        return;
      }
      std::filesystem::remove(folder, error);
    }
  }
  ~SmallGroup() {
    std::error_code ignored;
    if (folder_) std::filesystem::remove(*folder_, ignored);
  }
  explicit operator bool() const { return folder_.has_value(); }
  std::string procs() const { return folder_ ? (*folder_ / "cgroup.procs").string() : ""; }

 private:
  std::optional<std::filesystem::path> folder_;
};

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

/// The PID that rank `rank` has printed; nullopt if it has printed none yet.
std::optional<pid_t> pid_of(const std::string& out, int rank) {
  const auto begin = fmt::format("[{}] ready ", rank);
  const auto at = out.find(begin);
  if (at == out.npos || out.find('\n', at) == out.npos) return std::nullopt;
  return std::stoi(out.substr(at + begin.size()));
}

class Campaign : public testing::Test {
 protected:
  /// Has a random rank of a job fail so, and returns how long the launcher took after that.
  std::chrono::duration<double> fail_once(const Failure& failure) {
    const bool by_test = failure.kind.starts_with("SIG");
    const int rank = static_cast<int>(random_() % kNumRanks), step = 1 + static_cast<int>(random_() % 60);
    const bool uses_gloo = random_() % 3 == 0;
    test::CommandOptions options{
        .argv = {YOKE_COMMAND, "run", "--preload", "-n", std::to_string(kNumRanks), "--grace", "3", "--",
                 YOKE_FAILING_RANK, by_test ? "none" : failure.kind, std::to_string(rank), std::to_string(step),
                 std::to_string(kTimeout.count())},
        .environment = {{"CGROUP_PROCS", group_.procs()}, {"YOKE_SHARED_MEMORY", uses_gloo ? "0" : "1"}}};
    Command job(options);
    const auto name = fmt::format("{} of rank {} in step {}{}", failure.kind, rank, step, uses_gloo ? ", Gloo" : "");
    const auto has_begun = [&] {
      return by_test ? pid_of(job.out(), rank).has_value() : job.out().find("failing") != std::string::npos;
    };
    EXPECT_TRUE(job.wait_until(has_begun)) << name << job.err();
    if (by_test) {
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300'000));  // clock: a random moment
      kill(*pid_of(job.out(), rank), failure.kind == "SIGKILL" ? SIGKILL : SIGSTOP);
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto result = job.wait();
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_FALSE(result.timed_out) << name;
    EXPECT_NE(result.exit_code, 0) << name;
    const auto line = last_line(result.err);
    EXPECT_THAT(line, ContainsRegex(fmt::format("^yoke run: rank {} \\(pid [0-9]+\\) {}", rank, failure.said)))
        << name << "\n"
        << result.err;
    return took;
  }

  SmallGroup group_;
  std::minstd_rand random_{std::random_device{}()};
};

// YOKE_LONG: two hundred failures.
TEST_F(Campaign, NoInnocentRankIsNamed) {
  const bool is_long = std::getenv("YOKE_LONG") != nullptr;
  std::map<std::string, std::vector<double>> times;
  for (int round = 0; round < (is_long ? 200 : 4); ++round) {
    const auto& failure = failures()[random_() % failures().size()];
    if (failure.kind == "oom" && !group_) continue;
    times[failure.kind].push_back(fail_once(failure).count());
  }
  for (auto& [kind, all] : times) {
    std::ranges::sort(all);
    fmt::print("{:14} {:3} times; until the launcher had ended: median {:.2f} s, most {:.2f}\n", kind, all.size(),
               all[all.size() / 2], all.back());
  }
}

// All ranks end with the same error, and any of them may be the first one.
TEST(Culprit, IsTheRankWhoseErrorAllRanksRepeat) {
  for (int rank = 0; rank < 3; ++rank) {
    const auto result = test::run({.argv = {YOKE_COMMAND, "run", "--preload", "-n", "3", "--", YOKE_FAILING_RANK,
                                            "shared", std::to_string(rank), "2"}});
    EXPECT_EQ(result.exit_code, 75);
    EXPECT_THAT(result.err, ContainsRegex(fmt::format("yoke run: rank {0} failed: .*no rice on the disk.*\n"
                                                      "yoke run: rank {0} \\(pid [0-9]+\\) (failed first; then "
                                                      "rank|exited with code 75)",
                                                      rank)));
  }
}

TEST(Culprit, IsTheRankThatAloneWaitsForAMessage) {
  const auto result = test::run({.argv = {YOKE_COMMAND, "run", "--preload", "-n", "4", "--grace", "3", "--",
                                          YOKE_FAILING_RANK, "message", "2", "5", "8000"}});
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_THAT(last_line(result.err),
              ContainsRegex("^yoke run: rank 2 \\(pid [0-9]+\\) (waited for a message to or from "
                            "rank 3, while ranks 0, 1 and 3 waited in|had not entered)"));
}

TEST(Culprit, IsTheStoppedRankUnderReplace) {
  const auto result = test::run({.argv = {YOKE_COMMAND, "run", "-n", "3", "--replace", "2", "--grace", "3", "--",
                                          YOKE_FAILING_RANK, "stop", "1", "5", "8000"}});
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_THAT(last_line(result.err), ContainsRegex("^yoke run: rank 1 \\(pid [0-9]+\\) had been stopped for"));
}

/// As without --replace, where the others wait until it has ended.
TEST(Replaceable, RanksSayWhatAnotherOneReportedBeforeItEnded) {
  const auto result = test::run({.argv = {YOKE_COMMAND, "run", "-n", "3", "--replace", "9", "--", YOKE_FAILING_RANK,
                                          "throw", "2", "5", std::to_string(kTimeout.count())}});
  EXPECT_EQ(result.exit_code, 70);
  EXPECT_THAT(result.err,
              ContainsRegex("rank [01]: collective .* lost its connection to another rank: rank 2 has ended.*; "
                            "reported before: rank 2: an exception has ended it; its own log says which"));
}

}  // namespace
}  // namespace yoke
