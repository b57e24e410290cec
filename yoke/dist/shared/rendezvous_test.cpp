#include "yoke/dist/shared/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/process.h"

namespace yoke::dist::shared {
namespace {

using std::chrono::seconds;

/// What each of the other ranks gets if `come` is what they do.
std::vector<std::string> meet(int64_t num_others, const std::function<Joined(int64_t rank, const std::string&)>& come) {
  Door door;
  std::atomic<int64_t> num_absent = 0;
  std::vector<std::string> results(static_cast<size_t>(num_others) + 1);
  std::vector<std::thread> threads;
  for (int64_t rank = 1; rank <= num_others; ++rank) {
    threads.emplace_back([&, rank] {
      const auto joined = come(rank, door.address());
      if (joined == Joined::kAbsent) ++num_absent;
      results[static_cast<size_t>(rank)] = joined == Joined::kAll      ? "all"
                                           : joined == Joined::kNotAll ? "not all"
                                                                       : "absent";
    });
  }
  const auto file = to_descriptor("the memory");
  results[0] = door.pass(file, {.count = num_others,
                                .num_absent = [&] { return num_absent.load(); },
                                .until = Clock::now() + seconds(30)})
                   ? "all"
                   : "not all";
  for (auto& thread : threads) thread.join();
  return results;
}

Joined join_well(const std::string& address) {
  return join(
      address, [](const UniqueFd& file) { EXPECT_EQ(text_of(file), "the memory"); }, Clock::now() + seconds(30));
}

TEST(SharedRendezvous, AllRanksGetTheDescriptor) {
  for (const int64_t num_others : {1, 2, 7}) {
    const auto results = meet(num_others, [](int64_t, const std::string& address) { return join_well(address); });
    EXPECT_EQ(results, std::vector<std::string>(results.size(), "all"));
  }
}

TEST(SharedRendezvous, WithoutOneOfThemNobodyShares) {
  const auto elsewhere = meet(3, [](int64_t rank, const std::string& address) {
    return rank == 2 ? join_well("yoke-ranks/0/1/0000000000000000 secret") : join_well(address);
  });
  EXPECT_EQ(elsewhere, (std::vector<std::string>{"not all", "not all", "absent", "not all"}));
  const auto unmapped = meet(3, [](int64_t rank, const std::string& address) {
    const auto fails = [](const UniqueFd&) { throw Error(ErrorCode::kUnavailable, "no memory"); };
    return rank == 3 ? join(address, fails, Clock::now() + seconds(30)) : join_well(address);
  });
  EXPECT_EQ(unmapped, std::vector<std::string>(4, "not all"));
  EXPECT_EQ(join_well(""), Joined::kAbsent) << "the first rank has no memory";
}

TEST(SharedRendezvous, WhoDoesNotKnowTheSecretGetsNothing) {
  const auto results = meet(1, [](int64_t, const std::string& address) {
    const auto guessed = address.substr(0, address.find(' ')) + " " + std::string(32, '0');
    EXPECT_THROW(
        join(
            guessed, [](const UniqueFd&) { ADD_FAILURE() << "it got the descriptor"; }, Clock::now() + seconds(30)),
        std::runtime_error);
    return join_well(address);
  });
  EXPECT_EQ(results, (std::vector<std::string>{"all", "all"})) << "the guess has not disturbed the ranks";
}

TEST(SharedRendezvous, AnotherUserGetsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const auto results = meet(1, [](int64_t, const std::string& address) {
    const pid_t child = fork();
    if (child == 0) {
      if (setuid(65534) != 0) _exit(3);
      try {
        _exit(join(
                  address, [](const UniqueFd&) { _exit(4); }, Clock::now() + seconds(30)) == Joined::kAbsent
                  ? 0
                  : 5);
      } catch (const std::exception&) {
        _exit(0);
      }
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return join_well(address);
  });
  EXPECT_EQ(results, (std::vector<std::string>{"all", "all"}));
}

TEST(SharedRendezvous, ARankThatDoesNotComeIsATimeout) {
  Door door;
  const auto file = to_descriptor("the memory");
  EXPECT_THROW(door.pass(file, {.count = 1, .num_absent = [] { return int64_t{0}; }, .until = Clock::now()}),
               std::runtime_error);
}

TEST(SharedRendezvous, ADoorThatClosesEndsTheOthers) {
  std::string address;
  std::thread other;
  {
    Door door;
    address = door.address();
    other = std::thread([&] {
      try {
        EXPECT_EQ(join_well(address), Joined::kAbsent);
      } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("Connection closed by peer"), std::string::npos);
      }
    });
  }
  other.join();
}

}  // namespace
}  // namespace yoke::dist::shared
