// Ranks of one host that share memory, as processes that are killed and stopped.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "tests/support/command.h"
#include "yoke/base/error.h"

namespace yoke {
namespace {

using test::Command;
using testing::HasSubstr;
using testing::Not;

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Ranks whose launcher only serves their store, so they are not ended when one of them fails.
class Ranks {
 public:
  /// `prelude`: what a shell does before it becomes the rank.
  Ranks(int num_ranks, const std::vector<std::string>& words, const std::vector<Variables>& further = {},
        const std::function<std::string(int rank)>& prelude = {})
      : store_(c10::make_intrusive<c10d::TCPStore>(
            "127.0.0.1", c10d::TCPStoreOptions{.port = 0, .isServer = true, .waitWorkers = false})) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      test::CommandOptions options{.argv = {YOKE_RANK_PROGRAM},
                                   .environment = {{"RANK", std::to_string(rank)},
                                                   {"LOCAL_RANK", std::to_string(rank)},
                                                   {"WORLD_SIZE", std::to_string(num_ranks)},
                                                   {"LOCAL_WORLD_SIZE", std::to_string(num_ranks)},
                                                   {"MASTER_ADDR", "127.0.0.1"},
                                                   {"MASTER_PORT", std::to_string(store_->getPort())},
                                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}}};
      if (prelude) options.argv = {"sh", "-c", prelude(rank) + " && exec \"$0\" \"$@\"", YOKE_RANK_PROGRAM};
      options.argv.insert(options.argv.end(), words.begin(), words.end());
      if (!further.empty()) {
        const auto& own = further[static_cast<size_t>(rank)];
        options.environment.insert(options.environment.end(), own.begin(), own.end());
      }
      ranks_.push_back(std::make_unique<Command>(options));
    }
  }

  Command& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }

  void wait_until_all_say(const std::string& word) {
    for (const auto& rank : ranks_) {
      EXPECT_TRUE(rank->wait_until([&] { return rank->out().find(word) != std::string::npos; })) << rank->err();
    }
  }

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
  std::vector<std::unique_ptr<Command>> ranks_;
};

TEST(DistShared, RanksOfOneHostShareMemory) {
  Ranks ranks(2, {"churn"});
  ranks.wait_until_all_say("churning");
  for (const int rank : {0, 1}) EXPECT_THAT(ranks[rank].out(), HasSubstr("uses yoke\n"));
}

TEST(DistShared, ARankThatDoesNotWantToMakesAllUseGloo) {
  Ranks ranks(3, {"churn"}, {{}, {}, {{"YOKE_SHARED_MEMORY", "0"}}});
  ranks.wait_until_all_say("churning");
  for (const int rank : {0, 1, 2}) EXPECT_THAT(ranks[rank].out(), HasSubstr("uses gloo\n"));
  EXPECT_THAT(ranks[0].err(), HasSubstr("rank 0: collectives of CPU tensors use Gloo: rank 2 is in Python, or "
                                        "YOKE_SHARED_MEMORY is 0 there, or "));
  EXPECT_THAT(ranks[1].err(), Not(HasSubstr("Gloo")));
}

// Each way, limits that a user may have: on the first rank, which makes the memory, or on another one.
TEST(DistShared, LimitsMakeAllRanksUseGlooOrChunks) {
  const auto backend_with = [](const std::string& limit, int limited) {
    Ranks ranks(2, {"churn"}, {}, [&](int rank) { return rank == limited ? limit : ":"; });
    ranks.wait_until_all_say("churning");
    const auto out = ranks[0].out();
    EXPECT_EQ(out.find("uses yoke") == out.npos, ranks[1].out().find("uses yoke") == out.npos) << limit;
    return out.find("uses yoke") == out.npos ? "gloo" : "yoke";
  };
  EXPECT_STREQ(backend_with("ulimit -f 64", 0), "gloo") << "the file would be too large";
  EXPECT_STREQ(backend_with("ulimit -f 64", 1), "yoke");
  EXPECT_STREQ(backend_with("ulimit -f 1000000", 0), "yoke") << "without a place for tensors";
  for (const int rank : {0, 1}) EXPECT_STREQ(backend_with("ulimit -v 60000000", rank), "yoke");
}

/// The inodes of the memory that a process shares with other ranks, and "socket" if it has a socket to pass it on.
std::set<std::string> shared_of(const std::string& pid) {
  std::set<std::string> found;
  std::error_code error;
  const auto sockets = test::slurp("/proc/net/unix");
  for (const auto& fd : std::filesystem::directory_iterator("/proc/" + pid + "/fd", error)) {
    const auto target = std::filesystem::read_symlink(fd.path(), error).string();
    struct stat status = {};
    if (target.starts_with("/memfd:yoke-ranks") && stat(fd.path().c_str(), &status) == 0) {
      found.insert(std::to_string(status.st_ino));
    }
    if (!target.starts_with("socket:[")) continue;
    const auto inode = " " + target.substr(8, target.size() - 9) + " @yoke-ranks";
    if (sockets.find(inode) != sockets.npos) found.insert("socket");
  }
  return found;
}

std::set<std::string> shared_of_all_processes() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") == pid.npos) found.merge(shared_of(pid));
  }
  return found;
}

// YOKE_LONG: a thousand times.
TEST(DistShared, WhoeverIsKilledTheOthersEndWithANamedErrorAndLeaveNothing) {
  const int rounds = std::getenv("YOKE_LONG") != nullptr ? 1000 : 10;
  std::minstd_rand random(std::random_device{}());
  std::vector<double> times;  // from the signal until the last survivor was gone
  for (int round = 0; round < rounds; ++round) {
    const int num_ranks = 2 + round % 3;
    Ranks ranks(num_ranks, {"churn"});
    ranks.wait_until_all_say("churning");
    std::set<std::string> memory;
    for (int rank = 0; rank < num_ranks; ++rank) memory.merge(shared_of(std::to_string(ranks[rank].pid())));
    EXPECT_EQ(memory.size(), 2u) << "a file for each of two groups, and no socket";
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100'000));  // clock: a random moment
    const int killed = static_cast<int>(random() % static_cast<unsigned>(num_ranks));
    ranks[killed].signal(SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    for (int rank = 0; rank < num_ranks; ++rank) {
      const auto result = ranks[rank].wait();
      if (rank == killed) continue;
      EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kUnavailable)) << round << result.err;
      EXPECT_THAT(result.err, HasSubstr(fmt::format("lost its connection to another rank: rank {} has not arrived, and "
                                                    "has ended",
                                                    killed)))
          << round;
      EXPECT_THAT(result.err, Not(HasSubstr("reported before"))) << "a survivor told others what they know";
      EXPECT_FALSE(result.timed_out);
    }
    const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
    times.push_back(passed.count());
    for (const auto& left : shared_of_all_processes()) EXPECT_FALSE(memory.contains(left)) << round;
  }
  std::ranges::sort(times);
  const auto text =
      fmt::format("{} kills; until the last survivor was gone: median {:.0f} ms, 99 % {:.0f}, most {:.0f}", rounds,
                  times[times.size() / 2], times[times.size() * 99 / 100], times.back());
  fmt::print("{}\n", text);
}

// Each rank that waits says which one does not go on, also if it was stopped within the collective.
TEST(DistShared, AStoppedRankIsNamed) {
  Ranks ranks(3, {"churn", "8000"});  // they join within this time, too
  ranks.wait_until_all_say("churning");
  ranks[1].signal(SIGSTOP);
  for (const int rank : {0, 2}) {
    const auto result = ranks[rank].wait();
    EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kTimeout)) << result.err;
    EXPECT_THAT(result.err, HasSubstr("timed out after 8 s: rank 1 has "));
  }
}

}  // namespace
}  // namespace yoke
