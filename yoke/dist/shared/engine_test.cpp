// Ranks are threads here (run_engines_test.h). Processes are in yoke/dist/shared_memory_test.cpp.
#include "yoke/dist/shared/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <condition_variable>
#include <future>
#include <numeric>
#include <random>
#include <string>

#include "yoke/base/error.h"
#include "yoke/dist/shared/run_engines_test.h"

namespace yoke::dist::shared {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Exchange> sum_of(const Engine& engine, int64_t rank, std::vector<int32_t>& numbers) {
  auto* const memory = reinterpret_cast<std::byte*>(numbers.data());
  return make_reduction(engine.layout(), rank,
                        {.type = Type::kI32, .input = memory, .output = memory, .num_elements = std::ssize(numbers)});
}

std::vector<int32_t> numbers_of(int64_t rank, size_t size, int32_t mark) {
  std::vector<int32_t> numbers(size);
  std::iota(numbers.begin(), numbers.end(), mark + static_cast<int32_t>(1000 * rank));
  return numbers;
}

std::vector<int32_t> sum_of_all(int64_t num_ranks, size_t size, int32_t mark) {
  std::vector<int32_t> sum(size);
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const auto numbers = numbers_of(rank, size, mark);
    for (size_t i = 0; i < size; ++i) sum[i] += numbers[i];
  }
  return sum;
}

TEST(SharedEngine, ReducesAnySizeOnAnyNumberOfRanks) {
  for (const int64_t num_ranks : {2, 3, 5}) {
    run_engines(tiny(num_ranks), [&](Engine& engine, int64_t rank) {
      for (const size_t size : {1, 2, 15, 16, 17, 31, 32, 33, 100, 257, 1000}) {
        for (const auto driver : {Driver::kEngine, Driver::kWaiter}) {
          auto numbers = numbers_of(rank, size, 7);
          EXPECT_EQ(start(engine, sum_of(engine, rank, numbers), driver).wait(engine), "");
          ASSERT_EQ(numbers, sum_of_all(num_ranks, size, 7));
        }
      }
    });
  }
}

TEST(SharedEngine, ManyAreInFlightAndAreWaitedForInAnyOrder) {
  run_engines(tiny(3), [&](Engine& engine, int64_t rank) {
    std::minstd_rand random(static_cast<unsigned>(rank) + 1), sizes(42);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::vector<int32_t>> numbers;
      std::vector<Pending> pending;
      for (int i = 0; i < 25; ++i) {
        const size_t size = sizes() % 3 == 0 ? 200 + sizes() % 50 : sizes() % 16;
        numbers.push_back(numbers_of(rank, size, i));
        pending.push_back(
            start(engine, sum_of(engine, rank, numbers.back()), i % 4 == 0 ? Driver::kWaiter : Driver::kEngine));
        if (random() % 5 == 0) engine.poll(pending[random() % pending.size()].transfer);
        if (random() % 7 == 0) engine.hand_over(*pending[random() % pending.size()].transfer);
      }
      std::vector<size_t> order(pending.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t i : order) EXPECT_EQ(pending[i].wait(engine), "");
      for (size_t i = 0; i < numbers.size(); ++i) {
        ASSERT_EQ(numbers[i], sum_of_all(3, numbers[i].size(), static_cast<int32_t>(i)));
      }
    }
  });
}

TEST(SharedEngine, WhatIsHandedOverEndsWithoutAWaiter) {
  run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
    std::mutex mutex;
    std::condition_variable changed;
    int num_ended = 0;
    std::vector<int32_t> small = numbers_of(rank, 3, 0), large = numbers_of(rank, 300, 0);
    std::vector<std::shared_ptr<Transfer>> transfers;
    for (auto* const numbers : {&small, &large}) {
      auto transfer = transfers.emplace_back(std::make_shared<Transfer>());
      transfer->exchange = sum_of(engine, rank, *numbers);
      transfer->deadline = Clock::now() + seconds(60);
      transfer->on_end = [&](std::exception_ptr) {
        const std::lock_guard lock(mutex);
        ++num_ended;
        changed.notify_all();
      };
      engine.start(transfer, Driver::kEngine);
      engine.hand_over(*transfer);
    }
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, seconds(60), [&] { return num_ended == 2; }));
    EXPECT_EQ(small, sum_of_all(2, 3, 0));
    EXPECT_EQ(large, sum_of_all(2, 300, 0));
  });
}

TEST(SharedEngine, CopiesFromOneToAllFromAllToOneAndToEach) {
  for (const int64_t num_ranks : {2, 4}) {
    run_engines(tiny(num_ranks), [&](Engine& engine, int64_t rank) {
      for (const size_t size : {0, 1, 60, 64, 65, 1000}) {  // bytes of a piece
        const auto letter = [](int64_t from, int64_t to) { return std::byte(10 * from + to + 1); };
        for (const bool has_announced_sizes : {true, false}) {
          // Rank r sends to rank t pieces of `size` + t bytes, if sizes may differ.
          std::vector<std::vector<std::byte>> sent, received;
          CopyOptions options{.kind = 5, .for_each = true};
          options.bytes = has_announced_sizes ? -1 : static_cast<int64_t>(size);
          for (int64_t other = 0; other < num_ranks; ++other) {
            const auto extra = [&](int64_t to) { return has_announced_sizes ? static_cast<size_t>(to) + 1 : 0; };
            sent.emplace_back(size + extra(other), letter(rank, other)).reserve(1);
            received.emplace_back(size + extra(rank)).reserve(1);
          }
          for (auto& one : sent) options.send.emplace_back(one);
          for (auto& one : received) options.receive.emplace_back(one);
          EXPECT_EQ(start(engine, make_copy(engine.layout(), rank, options)).wait(engine), "");
          for (int64_t other = 0; other < num_ranks; ++other) {
            for (const auto one : received[static_cast<size_t>(other)]) ASSERT_EQ(one, letter(other, rank));
          }
        }
        for (int64_t root = 0; root < num_ranks; ++root) {  // from one to all
          std::vector<std::byte> piece(size + 1, letter(root, rank == root ? root : 0));
          CopyOptions options{.kind = 6, .root = static_cast<uint32_t>(root), .bytes = std::ssize(piece)};
          options.is_from_root = size != 1000;
          options.receive.resize(static_cast<size_t>(num_ranks));
          if (rank == root) {
            options.send = {piece};
          } else {
            options.receive[static_cast<size_t>(root)] = piece;
          }
          EXPECT_EQ(start(engine, make_copy(engine.layout(), rank, options)).wait(engine), "");
          for (const auto one : piece) ASSERT_EQ(one, letter(root, root));
        }
      }
    });
  }
}

TEST(SharedEngine, ARankThatRunsAheadWaitsForFreeSlots) {
  run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
    std::vector<std::vector<std::byte>> pieces;
    std::vector<Pending> pending;
    for (int i = 0; i < 40; ++i) pieces.emplace_back(8, rank == 0 ? std::byte(i) : std::byte(0));
    for (auto& piece : pieces) {
      CopyOptions options{.kind = 6, .bytes = 8};
      options.receive.resize(2);
      if (rank == 0) {
        options.send = {piece};
      } else {
        options.receive[0] = piece;
      }
      pending.push_back(start(engine, make_copy(engine.layout(), rank, options)));
    }
    for (const auto& one : pending) EXPECT_EQ(one.wait(engine), "");
    for (size_t i = 0; i < pieces.size(); ++i) EXPECT_EQ(pieces[i][7], std::byte(i));
  });
}

TEST(SharedEngine, AMissingRankIsATimeoutThatNamesIt) {
  for (const size_t size : {4, 400}) {
    std::barrier<> both(2);
    run_engines(tiny(3), [&](Engine& engine, int64_t rank) {
      if (rank == 2) return;
      auto numbers = numbers_of(rank, size, 0);
      both.arrive_and_wait();  // The time is long enough for both ranks to join in on a busy machine.
      const auto pending = start(engine, sum_of(engine, rank, numbers), Driver::kEngine, milliseconds(500));
      EXPECT_EQ(pending.wait(engine), "Timed out waiting for rank 2 of the group");
      const auto next = start(engine, sum_of(engine, rank, numbers));
      EXPECT_THAT(next.wait(engine), HasSubstr("Timed out")) << "ranks may be out of step now";
    });
  }
}

TEST(SharedEngine, AWaitThatEndsBeforeTheOperationsTimeIsNoFailure) {
  run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
    if (rank == 1) return;
    auto numbers = numbers_of(rank, 4, 0);
    const auto pending = start(engine, sum_of(engine, rank, numbers), Driver::kEngine, std::chrono::minutes(10));
    EXPECT_FALSE(engine.wait(pending.transfer, Clock::now()));
    engine.stop();
    EXPECT_THAT(pending.wait(engine), HasSubstr("have been closed"));
  });
}

TEST(SharedEngine, ARankThatEndsIsNoticedByAll) {
  for (const size_t size : {4, 400}) {
    UniqueFd file;
    const auto segment = Segment::create(tiny(3), file);
    std::barrier<> ready(3), done(2);
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        Engine engine(segment, {.rank = rank, .mismatch_patience = milliseconds(50)});
        ready.arrive_and_wait();
        auto numbers = numbers_of(rank, size, 0);
        if (rank == 2) return;
        EXPECT_THAT(start(engine, sum_of(engine, rank, numbers)).wait(engine), HasSubstr("Connection closed by peer"));
        done.arrive_and_wait();
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

// As in a second group of ranks, of which one has found the end of another in the first group.
TEST(SharedEngine, ARankThatGivesUpBecauseOfAnotherIsNotNamed) {
  UniqueFd file;
  const auto segment = Segment::create(tiny(3), file);
  std::thread([&] { segment->mark_alive(1); }).join();  // as SIGKILL does
  { const Engine gave_up(segment, {.rank = 0}); }
  ASSERT_TRUE(segment->has_ended(0) && segment->has_ended(1));
  Engine engine(segment, {.rank = 2});
  std::vector<std::byte> piece(4);
  CopyOptions options{.kind = 6, .root = 0, .bytes = 4};  // a broadcast, which needs nothing of rank 1
  options.receive = {piece, {}, {}};
  EXPECT_THAT(start(engine, make_copy(engine.layout(), 2, options)).wait(engine),
              HasSubstr("rank 1 of the group has ended"));
}

TEST(SharedEngine, WhatALostRankHasGivenIsUsed) {
  UniqueFd file;
  const auto segment = Segment::create(tiny(2), file);
  auto numbers = numbers_of(0, 4, 0), others = numbers_of(1, 4, 0);
  {
    Engine gone(segment, {.rank = 1});
    start(gone, sum_of(gone, 1, others));
  }
  EXPECT_TRUE(segment->has_ended(1));
  Engine engine(segment, {.rank = 0});
  EXPECT_EQ(start(engine, sum_of(engine, 0, numbers)).wait(engine), "");
  EXPECT_EQ(numbers, sum_of_all(2, 4, 0));
}

TEST(SharedEngine, OtherCollectivesAndSizesAreRecognised) {
  for (const size_t size : {4, 400}) {
    run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
      auto numbers = numbers_of(rank, size + static_cast<size_t>(rank), 0);
      const auto bytes = [&](size_t of_rank) { return "root 0, " + std::to_string(4 * (size + of_rank)) + " bytes)"; };
      EXPECT_THAT(start(engine, sum_of(engine, rank, numbers)).wait(engine),
                  AllOf(HasSubstr("the ranks of the group have called different collectives: rank 0 has called kind 0"),
                        HasSubstr(bytes(0) + ", rank 1 has called kind 0"), HasSubstr(bytes(1) + ": all of them")));
    });
  }
}

/// A broadcast of 8 bytes from `root`.
std::unique_ptr<Exchange> broadcast_of(const Engine& engine, int64_t rank, int64_t root,
                                       std::vector<std::byte>& piece) {
  piece.resize(8);
  CopyOptions options{.kind = 6, .root = static_cast<uint32_t>(root), .bytes = 8};
  options.receive.resize(static_cast<size_t>(engine.layout().num_ranks));
  if (rank == root) {
    options.send = {piece};
  } else {
    options.receive[static_cast<size_t>(root)] = piece;
  }
  return make_copy(engine.layout(), rank, options);
}

// Nothing but the calls themselves tells these apart, so they are told at once, and not after the patience.
TEST(SharedEngine, AnotherReductionOrRootIsNamedAtOnce) {
  for (const size_t size : {4, 400}) {
    run_engines(
        tiny(3),
        [&](Engine& engine, int64_t rank) {
          auto numbers = numbers_of(rank, size, 0);
          auto* const memory = reinterpret_cast<std::byte*>(numbers.data());
          const auto reduction = rank == 1 ? Reduction::kMax : Reduction::kSum;
          const auto text = start(engine, make_reduction(engine.layout(), rank,
                                                         {.kind = 7,
                                                          .type = Type::kI32,
                                                          .reduction = reduction,
                                                          .input = memory,
                                                          .output = memory,
                                                          .num_elements = std::ssize(numbers)}))
                                .wait(engine);
          EXPECT_THAT(text, AllOf(HasSubstr("ranks 0, 2 have called kind 7 (reduction 0,"),
                                  HasSubstr("rank 1 has called kind 7 (reduction 3,")));
        },
        std::chrono::hours(1));
  }
  run_engines(
      tiny(2),
      [&](Engine& engine, int64_t rank) {
        std::vector<std::byte> piece;
        EXPECT_THAT(start(engine, broadcast_of(engine, rank, 1 - rank, piece)).wait(engine),
                    AllOf(HasSubstr("rank 0 has called kind 6 (reduction 0, type 0, root 1, 8 bytes)"),
                          HasSubstr("rank 1 has called kind 6 (reduction 0, type 0, root 0, 8 bytes)")));
      },
      std::chrono::hours(1));
}

// Rank 2 reads the call of rank 1 alone, and must not take both for equally wrong.
TEST(SharedEngine, TheOneWhoseRootDiffersFromThatOfMostIsNamed) {
  for (const int64_t late : {-1, 0, 3}) {
    std::promise<void> last;
    auto may_call = last.get_future().share();
    run_hosts(
        tiny(4), {{0, 1, 2, 3}},
        [&](Engine& engine, int64_t rank) {
          std::vector<std::byte> piece;
          if (rank == late) may_call.wait();
          const auto pending = start(engine, broadcast_of(engine, rank, rank == 2 ? 1 : 0, piece));
          if (rank == 2 && late >= 0) {
            EXPECT_FALSE(engine.wait(pending.transfer, Clock::now() + milliseconds(50)));  // a shorter wait finds less
            last.set_value();
          }
          const auto text = pending.wait(engine);
          if (rank != 2) return;
          EXPECT_THAT(text, HasSubstr("ranks 0, 1, 3 have called kind 6 (reduction 0, type 0, root 0, 8 bytes), "
                                      "rank 2 has called kind 6 (reduction 0, type 0, root 1, 8 bytes)"));
        },
        std::chrono::hours(1));
  }
}

// Each takes itself for the root, so none reads what another one has called, before the next collective.
TEST(SharedEngine, RanksThatAllBroadcastAreNamedByTheNextCollective) {
  run_engines(
      tiny(2),
      [&](Engine& engine, int64_t rank) {
        std::vector<std::byte> piece, next;
        EXPECT_EQ(start(engine, broadcast_of(engine, rank, 0, piece)).wait(engine), "");
        EXPECT_EQ(start(engine, broadcast_of(engine, rank, rank, piece)).wait(engine), "");
        auto numbers = numbers_of(rank, 4, 0);
        EXPECT_THAT(start(engine, sum_of(engine, rank, numbers)).wait(engine),
                    AllOf(HasSubstr("have called different collectives before this one: rank 0 has called kind 6"),
                          HasSubstr("root 0, -1 bytes), rank 1 has called kind 6"), HasSubstr("root 1, -1 bytes):")));
      },
      std::chrono::hours(1));
}

TEST(SharedEngine, StopEndsWhatIsInFlight) {
  run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
    if (rank == 1) return;
    std::vector<int32_t> small = numbers_of(0, 3, 0), large = numbers_of(0, 300, 0);
    const auto first = start(engine, sum_of(engine, rank, small)), second = start(engine, sum_of(engine, rank, large));
    engine.stop();
    EXPECT_THAT(first.wait(engine), HasSubstr("have been closed"));
    EXPECT_THAT(second.wait(engine), HasSubstr("have been closed"));
    EXPECT_THAT(start(engine, sum_of(engine, rank, small)).wait(engine), HasSubstr("have been closed"));
  });
}

}  // namespace
}  // namespace yoke::dist::shared
