#include "yoke/dist/world.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"

namespace yoke::dist {
namespace {

using fakes::run_ranks;
using std::chrono::milliseconds;

TEST(World, OneRankNeedsNobody) {
  World world(RankEnv{}, {.device = c10::Device(c10::kCPU)});
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(World(RankEnv{}, {.device = c10::Device("cpu:0")}).device(), world.device());
  const auto tensor = at::full({3}, 2.0);
  world.all_reduce(tensor);
  world.broadcast(tensor);
  world.barrier();
  EXPECT_TRUE(at::equal(tensor, at::full({3}, 2.0)));
  EXPECT_TRUE(at::equal(world.all_gather(tensor), tensor.unsqueeze(0)));
  world.shutdown();
  world.shutdown();  // a second call has nothing to do
  EXPECT_THROW(world.barrier(), Error);
}

TEST(World, CollectivesGiveEveryRankTheSame) {
  run_ranks(3, [](World& world) {
    const auto sum = at::full({2, 2}, static_cast<double>(world.rank() + 1));
    world.all_reduce(sum);
    EXPECT_TRUE(at::equal(sum, at::full({2, 2}, 6.0)));
    const auto mean = at::full({4}, static_cast<double>(world.rank()));
    world.all_reduce(mean, ReduceOp::kMean);
    EXPECT_TRUE(at::equal(mean, at::full({4}, 1.0)));
    const auto low = at::full({1}, world.rank() + 5), high = low.clone();
    world.all_reduce(low, ReduceOp::kMin);
    world.all_reduce(high, ReduceOp::kMax);
    EXPECT_EQ(low.item<int64_t>(), 5);
    EXPECT_EQ(high.item<int64_t>(), 7);

    const auto shared = world.rank() == 2 ? at::arange(6).reshape({2, 3}) : at::zeros({2, 3}, at::kLong);
    world.broadcast(shared, 2);
    EXPECT_TRUE(at::equal(shared, at::arange(6).reshape({2, 3})));
    EXPECT_TRUE(at::equal(world.all_gather(at::full({2}, world.rank())), at::arange(3).unsqueeze(1).expand({3, 2})));
  });
}

TEST(World, TakesTensorsWhateverTheirStrides) {
  run_ranks(2, [](World& world) {
    const auto whole = at::zeros({2, 4}), gapped = whole.narrow(1, 0, 2);
    gapped.fill_(world.rank() + 1.0);
    world.all_reduce(gapped);
    EXPECT_TRUE(at::equal(gapped, at::full({2, 2}, 3.0)));
    gapped.fill_(world.rank() + 1.0);
    world.broadcast(gapped);
    EXPECT_TRUE(at::equal(gapped, at::full({2, 2}, 1.0)));
    EXPECT_TRUE(at::equal(whole.narrow(1, 2, 2), at::zeros({2, 2})));

    const auto numbers = at::arange(6).reshape({2, 3});
    const auto mixed = world.rank() == 0 ? numbers.clone() : numbers.t().contiguous().t();
    world.all_reduce(mixed);
    EXPECT_TRUE(at::equal(mixed, numbers.mul(2)));
  });
}

TEST(World, FlatCollectivesPutEachRanksPartInItsPlace) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t size : {1, 2, 3, 4}) {
      run_ranks(size, [&](World& world) {
        const auto all = at::arange(5 * size, at::kLong).to(dtype);  // [size * 5]
        const auto gathered = at::zeros({5 * size}, dtype);
        world.all_gather_into(gathered, all.narrow(0, 5 * world.rank(), 5));
        EXPECT_TRUE(at::equal(gathered, all));

        const auto in_place = at::zeros({5 * size}, dtype);
        const auto part = in_place.narrow(0, 5 * world.rank(), 5);
        part.copy_(all.narrow(0, 5 * world.rank(), 5));
        world.all_gather_into(in_place, part);
        EXPECT_TRUE(at::equal(in_place, all));

        const auto sum = at::zeros({5}, dtype), mean = at::zeros({5}, dtype);
        world.reduce_scatter(sum, all);
        world.reduce_scatter(mean, all, ReduceOp::kMean);
        const auto own = all.narrow(0, 5 * world.rank(), 5);
        EXPECT_TRUE(at::equal(sum, own.mul(size)));
        EXPECT_TRUE(at::equal(mean, own));
        EXPECT_TRUE(at::equal(gathered, all)) << "the input is left alone";
      });
    }
  }
}

TEST(World, SeveralCollectivesMayBeUnderWay) {
  run_ranks(3, [](World& world) {
    std::vector<at::Tensor> outputs;
    std::vector<PendingCollective> pending;
    for (int i = 0; i < 8; ++i) {
      const auto input = at::full({4}, static_cast<double>(10 * i + world.rank()), at::kDouble);
      outputs.push_back(at::zeros({12}, at::kDouble));
      pending.push_back(world.start_all_gather(outputs.back(), input));
      outputs.push_back(at::zeros({1}));
      pending.push_back(world.start_reduce_scatter(outputs.back(), at::full({3}, static_cast<float>(i))));
    }
    for (auto& one : pending) one.wait();
    for (int i = 0; i < 8; ++i) {
      for (int64_t rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(outputs[static_cast<size_t>(2 * i)][4 * rank].item<double>(), static_cast<double>(10 * i + rank));
      }
      EXPECT_EQ(outputs[static_cast<size_t>(2 * i + 1)][0].item<double>(), 3.0 * i);
    }
    pending[0].wait();  // a second call does nothing
  });
}

TEST(World, TextsOfAnyLengthAreGathered) {
  run_ranks(3, [](World& world) {
    const auto texts = world.all_gather_text(std::string(static_cast<size_t>(world.rank() * 5), 'x'));
    EXPECT_EQ(texts, (std::vector<std::string>{"", "xxxxx", "xxxxxxxxxx"}));
    EXPECT_EQ(world.all_gather_text("").size(), 3u);
  });
}

TEST(World, ABarrierHoldsUntilTheLastRankComes) {
  std::atomic<int> arrived = 0;
  run_ranks(4, [&](World& world) {
    ++arrived;
    world.barrier();
    EXPECT_EQ(arrived.load(), 4);
  });
}

TEST(World, ATimeoutNamesTheRankThatIsMissing) {
  std::mutex mutex;
  std::condition_variable changed;
  int timed_out = 0;
  std::vector<std::string> messages(3);
  run_ranks(
      3,
      [&](World& world) {
        const auto tensor = at::zeros({8});
        for (int i = 0; i < 5; ++i) world.all_reduce(tensor);
        std::unique_lock lock(mutex);
        if (world.rank() == 1) {  // this rank hangs until both other ranks have timed out
          changed.wait(lock, [&] { return timed_out == 2; });
          return;
        }
        lock.unlock();
        try {
          world.all_reduce(tensor);
        } catch (const Error& error) {
          lock.lock();
          messages[static_cast<size_t>(world.rank())] = error.what();
        }
        if (!lock.owns_lock()) lock.lock();
        ++timed_out;
        changed.notify_all();
      },
      std::chrono::seconds(5));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(messages[static_cast<size_t>(rank)], testing::HasSubstr("rank 1 has not arrived"))
        << "on rank " << rank;
  }
}

// The other ranks wait for a rank that has failed. Their errors must say why that rank failed.
TEST(World, AReportedFailureIsHeardByTheOthers) {
  std::mutex mutex;
  std::condition_variable changed;
  int timed_out = 0;
  std::vector<std::string> messages(3);
  run_ranks(
      3,
      [&](World& world) {
        std::unique_lock lock(mutex, std::defer_lock);
        if (world.rank() == 0) {
          world.report_failure("its batch is empty");
          world.report_failure("a later one");
          lock.lock();
          changed.wait(lock, [&] { return timed_out == 2; });
          return;
        }
        try {
          world.barrier();
        } catch (const Error& error) {
          lock.lock();
          messages[static_cast<size_t>(world.rank())] = error.what();
          ++timed_out;
          changed.notify_all();
        }
      },
      std::chrono::seconds(5));
  for (const int rank : {1, 2}) {
    EXPECT_THAT(messages[static_cast<size_t>(rank)], testing::HasSubstr("reported before: rank 0: its batch is empty"));
  }
}

// A rank leaves its loop early and reports this. The World's timeout is longer than the test may run, so the other rank
// can learn it in time only from the report.
TEST(World, ARankThatLeavesItsLoopEarlyIsToldSoAtOnce) {
  std::string early, late;
  const auto start = std::chrono::steady_clock::now();
  run_ranks(
      2,
      [&](World& world) {
        const auto tensor = at::zeros({8});
        for (int i = 0; i < 3; ++i) world.all_reduce(tensor);
        try {
          if (world.rank() == 1) world.shutdown();
          world.all_reduce(tensor);
          world.shutdown();
        } catch (const Error& error) {
          (world.rank() == 1 ? early : late) = error.what();
        }
        const World leaving(std::move(world));  // closes the connections, as the end of this rank's process would
      },
      std::chrono::minutes(5));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(2));  // clock: and not after the timeout
  EXPECT_THAT(early, testing::HasSubstr("rank 1: reached the end of the job too early: rank 0 is at collective"));
  EXPECT_THAT(late, testing::HasSubstr("reported before: rank 1: reached the end of the job"));
}

// Rank 0 needs nobody for what it has called more, so only the end of rank 1 tells.
TEST(World, ARankThatHasLeftItsLoopEarlyIsNamedAtTheEnd) {
  std::string message;
  run_ranks(
      2,
      [&](World& world) {
        const auto tensor = at::zeros({8});
        for (int i = 0; i < 3; ++i) world.all_reduce(tensor);
        if (world.rank() == 0) {
          try {
            world.broadcast(tensor);
            world.shutdown();
          } catch (const Error& error) {
            message = error.what();
          }
        }
        const World leaving(std::move(world));
      },
      std::chrono::minutes(5));
  const auto at_the_end = testing::HasSubstr(
      "rank 0: rank 1 has ended without World::shutdown() after collective 3, and this rank has entered 4: rank 1 has "
      "skipped some, or left its loop early");
  // Gloo needs the connection for the broadcast.
  EXPECT_THAT(message, testing::AnyOf(at_the_end, testing::HasSubstr("collective 4 lost its connection")));
}

// Rank 1 knows that the ranks wait in different collectives, and ends. Rank 0 learns it by its broken connection: its
// own thread asks the store once in a second only.
TEST(World, ALostConnectionOfRanksInDifferentCollectivesIsSaidToBeThat) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  const auto run_rank = [&](int64_t rank) {
    RankEnv env;
    env.rank = env.local_rank = rank;
    env.world_size = env.local_world_size = 2;
    World world(env, store, {.timeout = std::chrono::minutes(2), .device = c10::Device(c10::kCPU)});
    world.barrier();
    if (rank == 1) {
      store->set("mismatch", std::string("the ranks wait in different collectives"));
      return;  // without shutdown(), so the connections break
    }
    try {
      world.all_reduce(at::zeros({8}));
      ADD_FAILURE() << "rank 1 has ended";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_STREQ(error.what(), "rank 0: the ranks wait in different collectives");
    }
  };
  std::thread other(run_rank, 1);
  run_rank(0);
  other.join();
}

TEST(World, ARankThatAnExceptionEndsSaysSo) {
  std::string message;
  run_ranks(
      2,
      [&](World& world) {
        try {
          if (world.rank() == 1) {
            World own(std::move(world));
            throw std::runtime_error("the file is not there");
          }
          world.barrier();
        } catch (const Error& error) {
          message = error.what();
          const World leaving(std::move(world));  // no rank calls shutdown()
        } catch (const std::runtime_error&) {
        }
      },
      std::chrono::milliseconds(5000));
  EXPECT_THAT(message, testing::HasSubstr("rank 1: an exception has ended it"));
}

TEST(World, ARankThatNeverJoinsIsNamed) {
  RankEnv env;
  env.world_size = env.local_world_size = 2;
  try {
    World world(env, c10::make_intrusive<c10d::HashStore>(),
                {.timeout = milliseconds(500), .device = c10::Device(c10::kCPU)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1 has not joined the job within 0.5 s"));
  }
}

TEST(World, AStoreThatNobodyServesIsNamed) {
  RankEnv env;
  env.rank = env.local_rank = 1;
  env.world_size = env.local_world_size = 2;
  env.master_port = 1;
  try {
    World world(env, {.timeout = milliseconds(200), .device = c10::Device(c10::kCPU)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.what(), testing::HasSubstr("127.0.0.1:1"));
  }
}

TEST(World, ADeviceWithoutAPlugIsRefused) {
  EXPECT_THROW(World(RankEnv{}, {.device = c10::Device(c10::kCUDA, 0)}), Error);
}

}  // namespace
}  // namespace yoke::dist
