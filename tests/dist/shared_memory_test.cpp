// Ranks of one host that share memory, as processes that are killed and stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <random>
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
  Ranks(int num_ranks, const std::vector<std::string>& words, const std::vector<Variables>& further = {})
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
                                        "YOKE_SHARED_MEMORY is not 1 there\n"));
  EXPECT_THAT(ranks[1].err(), Not(HasSubstr("Gloo")));
}

// YOKE_LONG: a thousand times.
TEST(DistShared, WhoeverIsKilledTheOthersEndWithANamedError) {
  const int rounds = std::getenv("YOKE_LONG") != nullptr ? 1000 : 2;
  std::minstd_rand random(17);
  for (int round = 0; round < rounds; ++round) {
    Ranks ranks(3, {"churn"});
    ranks.wait_until_all_say("churning");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));  // clock: a random moment
    const int killed = static_cast<int>(random() % 3);
    ranks[killed].signal(SIGKILL);
    for (const int rank : {0, 1, 2}) {
      const auto result = ranks[rank].wait();
      if (rank == killed) continue;
      EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kUnavailable)) << round << result.err;
      EXPECT_THAT(result.err, HasSubstr("lost its connection to another rank"));
      EXPECT_FALSE(result.timed_out);
    }
  }
}

TEST(DistShared, AStoppedRankIsNamed) {
  Ranks ranks(3, {"churn", "3000"});
  ranks.wait_until_all_say("churning");
  ranks[1].signal(SIGSTOP);
  for (const int rank : {0, 2}) {
    const auto result = ranks[rank].wait();
    EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kTimeout)) << result.err;
    EXPECT_THAT(result.err, HasSubstr("timed out after 3 s"));
  }
}

}  // namespace
}  // namespace yoke
