#include "yoke/train/checkpoint/detail/state_copies.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"

namespace yoke::train::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Numbers = std::vector<int64_t>;

TEST(StateCopies, AreHeldByTheNextHost) {
  EXPECT_EQ(holders_of({0, 0, 1, 1, 2, 2}), (Numbers{2, 3, 4, 5, 0, 1}));
  EXPECT_EQ(holders_of({0, 1}), (Numbers{1, 0}));
  EXPECT_EQ(holders_of({0, 0, 0, 1, 1}), (Numbers{3, 4, 3, 0, 1})) << "some hold several";
  EXPECT_EQ(holders_of({0, 5, 0, 5}), (Numbers{1, 0, 3, 2}));
}

/// Four ranks, as threads, with two hosts in their environment.
void run_on_two_hosts(const std::function<void(dist::World& world)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> errors(4);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        RankEnv env;
        env.rank = env.local_rank = rank;
        env.world_size = env.local_world_size = 4;
        env.node_rank = rank / 2;
        env.num_nodes = 2;
        dist::World world(env, store, {.timeout = std::chrono::seconds(30), .device = c10::Device(c10::kCPU)});
        body(world);
        world.shutdown();
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

std::string record_of(int64_t rank, int64_t step, size_t bytes) {
  return std::to_string(rank) + " after " + std::to_string(step) + std::string(bytes, static_cast<char>('a' + rank));
}

std::string text_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

/// The steps of the copies that are held of a rank.
Numbers held_of(const StateCopies& copies, int64_t rank) {
  const auto steps = copies.steps();
  Numbers held = {steps[2 * static_cast<size_t>(rank)], steps[2 * static_cast<size_t>(rank) + 1]};
  std::ranges::sort(held);
  return held;
}

/// A rank that keeps states of so many bytes.
struct Keeper {
  explicit Keeper(dist::World& all_ranks) : world(all_ranks), copies(all_ranks) {}

  bool keep(int64_t step, size_t bytes = 100) {
    if (!copies.agree(step, last())) return false;
    last_step = step;
    record = record_of(world.rank(), step, bytes);
    copies.begin(last());
    return true;
  }
  bool skip() { return copies.agree(StateCopies::kNoStep, last()); }
  StateRecord last() const { return {last_step, record}; }
  int64_t ward() const { return (world.rank() + 2) % 4; }
  Numbers held() const { return held_of(copies, ward()); }
  std::string copy(int64_t step) const { return text_of(copies.find(ward(), step)); }

  dist::World& world;
  StateCopies copies;
  int64_t last_step = -1;
  std::string record;
};

TEST(StateCopies, TheLastTwoAreComplete) {
  run_on_two_hosts([](dist::World& world) {
    Keeper keeper(world);
    for (int64_t step = 0; step < 20; ++step) {
      ASSERT_TRUE(keeper.keep(step));
      EXPECT_EQ(keeper.held(), (Numbers{std::max<int64_t>(step - 2, -1), std::max<int64_t>(step - 1, -1)}));
      EXPECT_EQ(held_of(keeper.copies, world.rank()), (Numbers{-1, -1}));
      for (const int64_t held : keeper.held()) {
        if (held >= 0) {
          EXPECT_EQ(keeper.copy(held), record_of(keeper.ward(), held, 100));
        }
      }
    }
  });
}

TEST(StateCopies, GrowWithTheState) {
  run_on_two_hosts([](dist::World& world) {
    Keeper keeper(world);
    // Each time, the ranks' records have other sizes, and those of one rank do not grow at all.
    const auto bytes_at = [](int64_t rank, int64_t step) {
      return rank == 3 ? size_t{9} : step < 3 ? size_t{10} : (size_t{1} << (15 + step)) + static_cast<size_t>(rank);
    };
    for (int64_t step = 0; step < 8; ++step) {
      ASSERT_TRUE(keeper.keep(step, bytes_at(world.rank(), step)));
      if (step > 1) {
        EXPECT_EQ(keeper.held(), (Numbers{step - 2, step - 1}));
      }
      if (step > 0) {
        EXPECT_EQ(keeper.copy(step - 1), record_of(keeper.ward(), step - 1, bytes_at(keeper.ward(), step - 1)));
      }
    }
  });
}

TEST(StateCopies, NoRankKeepsWhatOneLeavesOut) {
  run_on_two_hosts([](dist::World& world) {
    Keeper keeper(world);
    for (int64_t step = 0; step < 10; ++step) {
      const bool leaves_out = step % 3 == 1 && world.rank() == 2;
      EXPECT_EQ(leaves_out ? keeper.skip() : keeper.keep(step), step % 3 != 1);
    }
    ASSERT_FALSE(keeper.skip());
    EXPECT_EQ(keeper.held(), (Numbers{8, 9}));
  });
}

TEST(StateCopies, ARankThatKeepsNothingIsFoundAtOnce) {
  std::atomic<int> num_told = 0;
  run_on_two_hosts([&](dist::World& world) {
    Keeper keeper(world);
    for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(keeper.keep(step));
    try {
      if (world.rank() != 2) keeper.keep(3);
      world.all_reduce(at::zeros({8}));
      ADD_FAILURE() << "rank " << world.rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("ranks 0, 1 and 3 are at keeping the state for lost ranks, keep() "),
                                      HasSubstr("rank 2 is at all_reduce of 8 Float (")));
      ++num_told;
    }
  });
  EXPECT_EQ(num_told, 4);
}

TEST(StateCopies, AfterALossAllAreThereAtOnce) {
  run_on_two_hosts([](dist::World& world) {
    Keeper keeper(world);
    constexpr size_t kBytes = 300'000;
    for (int64_t step = 0; step < 6; ++step) ASSERT_TRUE(keeper.keep(step, kBytes));
    ASSERT_FALSE(keeper.skip());
    keeper.copies.begin_again();
    EXPECT_EQ(keeper.held(), (Numbers{4, 5}));
    keeper.copies.forget_after(4);
    EXPECT_EQ(keeper.held(), (Numbers{-1, 4}));
    keeper.record = record_of(world.rank(), keeper.last_step = 4, kBytes);
    keeper.copies.send_now(keeper.last());
    EXPECT_EQ(keeper.copy(4), record_of(keeper.ward(), 4, kBytes));
    ASSERT_TRUE(keeper.keep(5, kBytes));
    ASSERT_FALSE(keeper.skip());
    EXPECT_EQ(keeper.held(), (Numbers{4, 5}));
    EXPECT_EQ(keeper.copy(5), record_of(keeper.ward(), 5, kBytes));
  });
}

}  // namespace
}  // namespace yoke::train::detail
