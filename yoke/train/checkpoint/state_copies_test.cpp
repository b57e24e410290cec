#include "yoke/train/checkpoint/detail/state_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "fakes/run_ranks.h"
#include "yoke/dist/world.h"

namespace yoke::train::detail {
namespace {

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

TEST(StateCopies, TheLastTwoAreComplete) {
  run_on_two_hosts([](dist::World& world) {
    StateCopies copies(world);
    const int64_t ward = (world.rank() + 2) % 4;
    for (int64_t step = 0; step < 20; ++step) {
      ASSERT_TRUE(copies.agree(step));
      EXPECT_EQ(held_of(copies, ward), (Numbers{std::max<int64_t>(step - 2, -1), std::max<int64_t>(step - 1, -1)}));
      EXPECT_EQ(held_of(copies, world.rank()), (Numbers{-1, -1}));
      for (const int64_t held : held_of(copies, ward)) {
        if (held >= 0) EXPECT_EQ(text_of(copies.find(ward, held)), record_of(ward, held, 100));
      }
      copies.begin(step, record_of(world.rank(), step, 100));
    }
  });
}

/// One that becomes larger than before is missing once, and the older ones stay.
TEST(StateCopies, GrowWithTheState) {
  run_on_two_hosts([](dist::World& world) {
    StateCopies copies(world);
    const int64_t ward = (world.rank() + 2) % 4;
    const auto bytes_at = [](int64_t rank, int64_t step) { return step < 3 ? 10 : (1 << 20) + static_cast<size_t>(rank); };
    for (int64_t step = 0; step < 8; ++step) {
      ASSERT_TRUE(copies.agree(step));
      if (step == 4) EXPECT_EQ(held_of(copies, ward), (Numbers{1, 2})) << "that of step 3 did not fit";
      if (step == 5) EXPECT_EQ(held_of(copies, ward), (Numbers{2, 4}));
      copies.begin(step, record_of(world.rank(), step, bytes_at(world.rank(), step)));
    }
    ASSERT_TRUE(copies.agree(8));
    EXPECT_EQ(text_of(copies.find(ward, 7)), record_of(ward, 7, bytes_at(ward, 7)));
  });
}

TEST(StateCopies, NoRankKeepsWhatOneLeavesOut) {
  run_on_two_hosts([](dist::World& world) {
    StateCopies copies(world);
    for (int64_t step = 0; step < 10; ++step) {
      const bool leaves_out = step % 3 == 1 && world.rank() == 2;
      const bool all_keep = copies.agree(leaves_out ? StateCopies::kNoStep : step);
      EXPECT_EQ(all_keep, step % 3 != 1);
      if (all_keep) copies.begin(step, record_of(world.rank(), step, 100));
    }
    ASSERT_TRUE(copies.agree(10));
    EXPECT_EQ(held_of(copies, (world.rank() + 2) % 4), (Numbers{8, 9}));
  });
}

TEST(StateCopies, AfterALossAllAreThereAtOnce) {
  run_on_two_hosts([](dist::World& world) {
    StateCopies copies(world);
    const int64_t ward = (world.rank() + 2) % 4;
    for (int64_t step = 0; step < 5; ++step) {
      ASSERT_TRUE(copies.agree(step));
      copies.begin(step, record_of(world.rank(), step, 300'000));
    }
    ASSERT_TRUE(copies.agree(5));
    copies.begin_again();
    copies.forget_after(3);
    EXPECT_EQ(held_of(copies, ward), (Numbers{-1, 3}));
    copies.send_now(3, record_of(world.rank(), 3, 300'000));
    EXPECT_EQ(text_of(copies.find(ward, 3)), record_of(ward, 3, 300'000));
    ASSERT_TRUE(copies.agree(4));
    copies.begin(4, record_of(world.rank(), 4, 300'000));
    ASSERT_TRUE(copies.agree(5));
    EXPECT_EQ(text_of(copies.find(ward, 4)), record_of(ward, 4, 300'000));
  });
}

}  // namespace
}  // namespace yoke::train::detail
