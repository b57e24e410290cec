#include "yoke/dist/detail/stop_agreement.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "fakes/run_ranks.h"
#include "yoke/dist/detail/gloo.h"

namespace yoke::dist {
namespace {

using std::chrono::milliseconds;

c10::intrusive_ptr<c10d::Backend> backend_of(const World& world, const c10::intrusive_ptr<c10d::Store>& store) {
  return make_gloo(store, {.rank = world.rank(),
                           .size = world.size(),
                           .address = gloo_address(world.env()),
                           .timeout = std::chrono::minutes(10)});
}

const StopAgreement::Wait plain_wait = [](c10d::Work& work) { work.wait(); };

TEST(StopAgreement, AloneItIsWhatOneWasTold) {
  bool is_told = false;
  StopAgreement stop(nullptr, [&] { return is_told; });
  EXPECT_FALSE(stop.should_stop(plain_wait));
  is_told = true;
  EXPECT_TRUE(stop.should_stop(plain_wait));
  is_told = false;
  EXPECT_TRUE(stop.should_stop(plain_wait)) << "what was agreed stays";
}

// Oracle: all ranks must stop at the same step, although a timer sets one rank's flag at an arbitrary moment of a step.
TEST(StopAgreement, AllRanksStopAtTheSameCallWheneverOneIsTold) {
  constexpr int64_t kRanks = 3;
  std::mt19937 random(7);
  for (int round = 0; round < 60 && !testing::Test::HasFailure(); ++round) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto told = static_cast<int64_t>(random() % kRanks);
    std::vector<milliseconds::rep> paces(kRanks);  // each rank has a different speed
    for (auto& pace : paces) pace = static_cast<milliseconds::rep>(random() % 300);
    const std::chrono::microseconds when(random() % 30'000);
    std::atomic<bool> is_told = false;
    std::vector<int64_t> told_at(kRanks, -1), stopped_at(kRanks, -1);
    std::thread clock([&] {
      std::this_thread::sleep_for(when);  // clock: any moment will do
      is_told = true;
    });
    fakes::run_ranks(kRanks, [&](World& world) {
      const auto rank = static_cast<size_t>(world.rank());
      int64_t call = 0;
      StopAgreement stop(backend_of(world, store), [&] {
        const bool told_now = world.rank() == told && is_told;
        if (told_now && told_at[rank] < 0) told_at[rank] = call;
        return told_now;
      });
      while (!stop.should_stop(plain_wait)) {
        ++call;
        std::this_thread::sleep_for(std::chrono::microseconds(paces[rank]));
      }
      stopped_at[rank] = call;
    });
    clock.join();
    const auto asked = told_at[static_cast<size_t>(told)];
    EXPECT_EQ(stopped_at, std::vector<int64_t>(kRanks, stopped_at[0])) << "round " << round;
    EXPECT_GT(stopped_at[0], asked);
    EXPECT_LE(stopped_at[0], asked + StopAgreement::kMaxInterval) << "from the call that read the flag";
  }
}

// With short steps, most calls start no all-reduce. With long steps, a stop must still not be delayed much.
TEST(StopAgreement, TheIntervalFollowsTheSteps) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  fakes::run_ranks(2, [&](World& world) {
    bool is_told = false;
    int64_t num_asked = 0;
    StopAgreement::Time now{std::chrono::hours(1)};
    StopAgreement stop(
        backend_of(world, store),
        [&] {
          ++num_asked;
          return is_told;
        },
        [&] { return now; });
    const auto one_step = [&](milliseconds time) {
      now += time;
      return stop.should_stop(plain_wait);
    };
    for (int call = 0; call < 400; ++call) EXPECT_FALSE(one_step(milliseconds(1)));
    EXPECT_LT(num_asked, 40);
    const auto one_slow_step = [&] { return one_step(milliseconds(30)); };
    const int64_t before = num_asked;
    while (num_asked < before + 3) one_slow_step();  // two intervals for short steps may have to pass first
    is_told = true;
    int num_more = 1;
    while (!one_slow_step()) ++num_more;
    EXPECT_LE(num_more, 8);
  });
}

TEST(StopAgreement, WhatIsInFlightAtTheEndIsFinished) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  fakes::run_ranks(2, [&](World& world) {
    StopAgreement stop(backend_of(world, store), [] { return false; });
    EXPECT_FALSE(stop.should_stop(plain_wait));
    stop.finish(plain_wait);
    stop.finish(plain_wait);
  });
}

// If a rank leaves by an exception while another rank hangs, the leaving rank must be able to end.
TEST(StopAgreement, LeavingDoesNotWaitForARankThatHangs) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<bool> has_left = false;
  fakes::run_ranks(2, [&](World& world) {
    auto stop = std::make_unique<StopAgreement>(backend_of(world, store), [] { return false; });
    if (world.rank() == 1) {
      while (!has_left) std::this_thread::yield();
      return;
    }
    EXPECT_FALSE(stop->should_stop(plain_wait));
    const auto before = std::chrono::steady_clock::now();
    stop.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::minutes(1));  // clock: and not until the timeout
    has_left = true;
  });
}

}  // namespace
}  // namespace yoke::dist
