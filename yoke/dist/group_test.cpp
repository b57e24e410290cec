#include "yoke/dist/group.h"

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"
#include "yoke/dist/activity.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/dist/same_on_all_ranks.h"
#include "yoke/dist/world.h"

namespace yoke::dist {
namespace {

using fakes::run_ranks;
using testing::ElementsAre;
using testing::HasSubstr;

/// Runs `body` on Worlds of 1, 2 and 4 ranks, then on both halves of a World of 4 ranks at the same time. `mark` is
/// different in the two halves.
void on_groups(const std::function<void(Group& group, int64_t mark)>& body) {
  for (const int64_t size : {1, 2, 4}) run_ranks(size, [&](World& world) { body(world, 0); });
  run_ranks(4, [&](World& world) {
    auto half = world.split(world.rank() % 2);
    ASSERT_EQ(half.size(), 2);
    body(half, 100 * half.ranks()[0]);
  });
}

/// Returns [size]: the values of all ranks of a group if each rank contributes mark + its rank.
at::Tensor of_all_ranks(const Group& group, int64_t mark) { return at::arange(mark, mark + group.size()); }

TEST(Group, ReducesAndGathersAmongItsRanksAlone) {
  on_groups([](Group& group, int64_t mark) {
    const auto all = of_all_ranks(group, mark);
    const auto own = at::full({2}, mark + group.rank());
    const auto sum = own.clone(), most = own.clone(), shared = own.clone();
    group.all_reduce(sum);
    EXPECT_TRUE(at::equal(sum, all.sum().expand({2})));
    group.start_all_reduce(most, ReduceOp::kMax).wait();
    EXPECT_TRUE(at::equal(most, all.max().expand({2})));
    const auto mean = own.to(at::kDouble);
    group.start_all_reduce(mean, ReduceOp::kMean).wait();
    EXPECT_TRUE(at::equal(mean, all.to(at::kDouble).mean().expand({2})));
    group.broadcast(shared, group.size() - 1);
    EXPECT_TRUE(at::equal(shared, all[-1].expand({2})));
    EXPECT_TRUE(at::equal(group.all_gather(own), all.unsqueeze(1).expand({-1, 2})));

    const auto gathered = at::zeros({group.size()}, at::kLong), part = at::zeros({1}, at::kLong);
    group.all_gather_into(gathered, own.narrow(0, 0, 1));
    EXPECT_TRUE(at::equal(gathered, all));
    group.reduce_scatter(part, all);
    EXPECT_EQ(part.item<int64_t>(), group.size() * (mark + group.rank()));
    EXPECT_TRUE(at::equal(all, of_all_ranks(group, mark))) << "the input stays";
    const auto half = at::zeros({1}, at::kHalf);
    group.reduce_scatter(half, all.to(at::kHalf), ReduceOp::kMean);
    EXPECT_EQ(half.item<int64_t>(), mark + group.rank());
    EXPECT_THROW(group.reduce_scatter(at::zeros({2}), at::zeros({group.size()})), Error);
    EXPECT_THROW(group.reduce_scatter(part, all.to(at::kDouble)), Error);
    EXPECT_EQ(group.all_gather_text(std::to_string(mark)).back(), std::to_string(mark));
    group.barrier();
  });
}

TEST(Group, GathersToOneRankAndScattersFromOne) {
  on_groups([](Group& group, int64_t mark) {
    const auto all = of_all_ranks(group, mark);
    for (int64_t root = 0; root < group.size(); ++root) {
      const auto gathered = group.gather(at::full({3}, mark + group.rank()), root);
      EXPECT_EQ(gathered.defined(), group.rank() == root);
      if (gathered.defined()) {
        EXPECT_TRUE(at::equal(gathered, all.unsqueeze(1).expand({-1, 3})));
      }

      const auto whole = at::zeros({3, 2}, at::kLong), column = whole.select(1, 0);  // not contiguous
      group.scatter(column, group.rank() == root ? all.unsqueeze(1).expand({-1, 3}) : at::Tensor(), root);
      EXPECT_TRUE(at::equal(column, at::full({3}, mark + group.rank())));
      EXPECT_TRUE(at::equal(whole.select(1, 1), at::zeros({3}, at::kLong)));
    }
  });
}

TEST(Group, SendsRowsFromAllToAll) {
  on_groups([](Group& group, int64_t mark) {
    const int64_t size = group.size(), rank = group.rank();
    const auto equal = at::zeros({2 * size, 3}, at::kLong);
    // Rank r sends 2 rows of mark + 10 r + t to rank t.
    const auto rows = at::arange(size).add(mark + 10 * rank).repeat_interleave(2).unsqueeze(1).expand({-1, 3});
    group.all_to_all(equal, rows.contiguous());
    const auto wanted = at::arange(size).mul(10).add(mark + rank).repeat_interleave(2).unsqueeze(1).expand({-1, 3});
    EXPECT_TRUE(at::equal(equal, wanted)) << equal;

    // Rank r sends r + t + 1 elements of mark + 10 r + t to rank t.
    Splits splits;
    std::vector<at::Tensor> sent, expected;
    for (int64_t other = 0; other < size; ++other) {
      splits.input.push_back(rank + other + 1);
      splits.output.push_back(rank + other + 1);
      sent.push_back(at::full({rank + other + 1}, mark + 10 * rank + other));
      expected.push_back(at::full({rank + other + 1}, mark + 10 * other + rank));
    }
    const auto uneven = at::zeros_like(at::cat(expected));
    group.all_to_all(uneven, at::cat(sent), splits);
    EXPECT_TRUE(at::equal(uneven, at::cat(expected))) << uneven;
  });
}

TEST(Group, SendsFromOneRankToAnother) {
  on_groups([](Group& group, int64_t mark) {
    const int64_t next = (group.rank() + 1) % group.size(), last = (group.rank() + group.size() - 1) % group.size();
    if (group.size() == 1) return;
    for (int64_t round = 0; round < 3; ++round) {  // each rank sends to the next one, all at once
      const auto received = at::zeros({2}, at::kLong);
      auto sending = group.start_send(at::full({2}, mark + 10 * round + group.rank()), next);
      group.receive(received, last);
      sending.wait();
      EXPECT_TRUE(at::equal(received, at::full({2}, mark + 10 * round + last)));
    }
    if (group.rank() == 0) group.send(at::arange(1000), 1);
    const auto numbers = at::zeros({1000}, at::kLong);
    if (group.rank() == 1) group.receive(numbers, 0);
    EXPECT_EQ(at::equal(numbers, at::arange(1000)), group.rank() == 1);
  });
}

// Backward does not pass through Group's collectives: gradients would be those of this rank alone, or lost.
TEST(Group, RefusesWhatNeedsAGradientAndNamesWhatPassesIt) {
  World world(RankEnv{}, {.device = c10::Device(c10::kCPU)});
  const auto leaf = at::ones({1}).set_requires_grad(true);
  const auto result = leaf * 2, plain = at::ones({1});
  struct Refused {
    const char *name, *instead;
    std::function<void(const at::Tensor& tensor)> call;
  };
  const Refused calls[] = {
      {"all_reduce: ", "all_reduce", [&](auto& x) { world.all_reduce(x); }},
      {"all_reduce: ", "all_reduce", [&](auto& x) { world.start_all_reduce(x).wait(); }},
      {"broadcast: ", "broadcast", [&](auto& x) { world.broadcast(x); }},
      {"all_gather: ", "all_gather", [&](auto& x) { world.all_gather(x); }},
      {"gather: ", "all_gather", [&](auto& x) { world.gather(x); }},
      {"scatter: ", "broadcast", [&](auto& x) { world.scatter(plain, x.unsqueeze(0)); }},
      {"scatter: ", "broadcast", [&](auto& x) { world.scatter(x, plain.unsqueeze(0)); }},
      {"all_to_all: ", "all_to_all", [&](auto& x) { world.all_to_all(plain, x); }},
      {"all_to_all: ", "all_to_all", [&](auto& x) { world.all_to_all(x, plain); }},
      {"all_gather_into: ", "all_gather", [&](auto& x) { world.all_gather_into(plain, x); }},
      {"all_gather_into: ", "all_gather", [&](auto& x) { world.start_all_gather(x, plain).wait(); }},
      {"reduce_scatter: ", "reduce_scatter", [&](auto& x) { world.reduce_scatter(plain, x); }},
      {"reduce_scatter: ", "reduce_scatter", [&](auto& x) { world.start_reduce_scatter(x, plain).wait(); }},
  };
  for (const auto& [name, instead, call] : calls) {
    for (const auto& tensor : {result, leaf}) {
      try {
        call(tensor);
        ADD_FAILURE() << name << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_THAT(error.what(), testing::StartsWith(name));
        EXPECT_THAT(error.what(), HasSubstr(std::string("call dist::gradient::") + instead + " ("));
        EXPECT_THAT(error.what(), HasSubstr("give it tensor.detach(), or call it under torch::NoGradGuard"));
      }
      EXPECT_NO_THROW(call(tensor.detach())) << name;
      const at::NoGradGuard no_grad;
      EXPECT_NO_THROW(call(tensor)) << name;
    }
  }
  world.shutdown();
  run_ranks(2, [](World& ranks) {
    const auto own = at::ones({1}).set_requires_grad(true);
    EXPECT_THROW(ranks.start_send(own, 1 - ranks.rank()), Error);
    EXPECT_THROW(ranks.start_receive(own, 1 - ranks.rank()), Error);
  });
}

// Backends write without autograd's knowledge, and backward would use the new values.
TEST(Group, AValueThatBackwardNeedsIsNotChangedInSilence) {
  run_ranks(2, [](World& world) {
    const auto weight = at::ones({2}).set_requires_grad(true);
    const auto product = [&](const at::Tensor& saved) { return (weight * saved).sum(); };
    const auto one = at::ones({1}), four = at::ones({4});
    const std::vector<std::pair<const char*, std::function<void(const at::Tensor& saved)>>> writing = {
        {"all_reduce", [&](auto& x) { world.all_reduce(x); }},
        {"all_reduce, detached", [&](auto& x) { world.all_reduce(x.detach()); }},
        {"start_all_reduce", [&](auto& x) { world.start_all_reduce(x).wait(); }},
        {"broadcast", [&](auto& x) { world.broadcast(x); }},
        {"scatter",
         [&](auto& x) {
           world.scatter(x, four.view({2, 2}));
         }},
        {"all_to_all", [&](auto& x) { world.all_to_all(x, at::ones({2})); }},
        {"all_gather_into", [&](auto& x) { world.all_gather_into(x, one); }},
        {"reduce_scatter", [&](auto& x) { world.reduce_scatter(x, four); }},
        {"receive",
         [&](auto& x) {
           auto sending = world.start_send(at::ones({2}), 1 - world.rank());
           world.receive(x, 1 - world.rank());
           sending.wait();
         }},
    };
    for (const auto& [name, write] : writing) {
      const auto saved = at::ones({2});
      const auto loss = product(saved);
      write(saved);
      EXPECT_THROW(loss.backward(), c10::Error) << name;
    }
    const auto saved = at::ones({2});
    const auto loss = product(saved);
    world.all_gather(saved);
    world.gather(saved);
    world.scatter(one, saved.view({2, 1}));
    world.all_to_all(at::ones({2}), saved);
    world.all_gather_into(four, saved);
    world.reduce_scatter(one, saved);
    EXPECT_NO_THROW(loss.backward()) << "it was only read";
  });
}

// Oracle: the real and the imaginary parts, sent apart.
TEST(Group, SendsComplexNumbersAsPairs) {
  run_ranks(2, [](World& world) {
    const auto real = at::full({3}, 1.0 + world.rank()), imaginary = at::full({3}, 10.0 - world.rank());
    const auto own = at::complex(real, imaginary);
    const auto whole = at::complex(world.all_gather(real), world.all_gather(imaginary));
    EXPECT_TRUE(at::equal(world.all_gather(own), whole));
    const auto gathered = world.gather(own);
    if (world.rank() == 0) {
      EXPECT_TRUE(at::equal(gathered, whole));
    }
    const auto sum = own.clone(), mean = own.clone(), first = own.clone(), part = at::empty_like(own);
    world.all_reduce(sum);
    EXPECT_TRUE(at::equal(sum, whole.sum(0)));
    world.all_reduce(mean, ReduceOp::kMean);
    EXPECT_TRUE(at::equal(mean, whole.mean(0)));
    world.broadcast(first);
    EXPECT_TRUE(at::equal(first, whole[0]));
    world.scatter(part, whole.conj());
    EXPECT_TRUE(at::equal(part, own.conj().resolve_conj()));
    world.reduce_scatter(part, own.repeat({2}));
    EXPECT_TRUE(at::equal(part, whole.sum(0)));
    EXPECT_THROW(world.all_reduce(sum, ReduceOp::kMax), Error);
  });
}

TEST(Group, IsSplitByColorAndOrderedByKey) {
  run_ranks(4, [](World& world) {
    EXPECT_THAT(world.ranks(), ElementsAre(0, 1, 2, 3));
    auto backwards = world.split(7, -world.rank());
    EXPECT_THAT(backwards.ranks(), ElementsAre(3, 2, 1, 0));
    EXPECT_EQ(backwards.rank(), 3 - world.rank());
    auto three = world.split(world.rank() == 2 ? -5 : 5);
    if (world.rank() == 2) {
      EXPECT_THAT(three.ranks(), ElementsAre(2));
    } else {
      EXPECT_THAT(three.ranks(), ElementsAre(0, 1, 3));
    }
    // Splitting a group uses the group's own ranks and order, but ranks() still returns ranks of the World.
    auto halves = backwards.split(backwards.rank() / 2);
    EXPECT_THAT(halves.ranks(), world.rank() >= 2 ? ElementsAre(3, 2) : ElementsAre(1, 0));
    const auto first = at::full({1}, world.rank());
    halves.broadcast(first);
    EXPECT_EQ(first.item<int64_t>(), world.rank() >= 2 ? 3 : 1);
    EXPECT_THAT(world.of_this_host().ranks(), ElementsAre(0, 1, 2, 3));
  });
}

// The groups are rows {0, 1} and {2, 3}, columns {0, 2} and {1, 3}, and all four ranks. Each rank has collectives of
// its three groups in flight at the same time. The two rows do different numbers of collectives in between.
TEST(Group, CollectivesOfOverlappingGroupsDoNotMix) {
  run_ranks(4, [](World& world) {
    const int64_t row_index = world.rank() / 2, column_index = world.rank() % 2;
    auto row = world.split(row_index), column = world.split(column_index);
    for (int64_t step = 0; step < 30; ++step) {
      const int64_t mark = 1000 * step;
      const auto own = at::full({64}, mark + world.rank());
      const auto of_column = at::zeros({128}, at::kLong), of_all = at::zeros({256}, at::kLong);
      const auto in_column = own.clone(), in_all = own.clone();
      auto a = column.start_all_gather(of_column, own);
      auto b = world.start_all_reduce(in_all);
      for (int64_t i = 0; i <= row_index * 3; ++i) {
        const auto sum = at::full({64}, mark + 100 * i + world.rank());
        row.all_reduce(sum);
        ASSERT_TRUE(at::equal(sum, at::full({64}, 2 * (mark + 100 * i) + 4 * row_index + 1)));
      }
      auto c = world.start_all_gather(of_all, own);
      auto d = column.start_all_reduce(in_column);
      d.wait();
      c.wait();
      b.wait();
      a.wait();
      ASSERT_TRUE(at::equal(in_column, at::full({64}, 2 * mark + 2 * column_index + 2)));
      ASSERT_TRUE(at::equal(in_all, at::full({64}, 4 * mark + 6)));
      ASSERT_TRUE(at::equal(of_all, at::arange(mark, mark + 4).repeat_interleave(64)));
      ASSERT_TRUE(at::equal(of_column, at::arange(mark + column_index, mark + 4, 2).repeat_interleave(64)));
    }
  });
}

/// Runs a collective on all ranks except `staying_away`, which only waits until the others have timed out. Returns each
/// rank's error.
std::vector<std::string> without(int64_t num_ranks, int64_t staying_away,
                                 const std::function<void(World& world, bool comes)>& body) {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t num_done = 0;
  std::vector<std::string> messages(static_cast<size_t>(num_ranks));
  run_ranks(
      num_ranks,
      [&](World& world) {
        std::string message;
        try {
          body(world, world.rank() != staying_away);
        } catch (const Error& error) {
          message = error.what();
        }
        std::unique_lock lock(mutex);
        messages[static_cast<size_t>(world.rank())] = message;
        ++num_done;
        changed.notify_all();
        changed.wait(lock, [&] { return num_done == num_ranks; });
      },
      std::chrono::seconds(5));
  return messages;
}

TEST(Group, ATimeoutNamesTheGroupAndItsMissingRank) {
  const auto messages = without(4, 1, [](World& world, bool comes) {
    auto group = world.split(world.rank() % 2);
    const auto tensor = at::zeros({8});
    if (!comes) {
      EXPECT_THROW(group.send(at::complex(tensor, tensor).conj(), 1), Error) << "not sent, so it shifts no number";
    }
    for (int i = 0; i < 2 + world.rank() % 2; ++i) group.all_reduce(tensor);
    if (comes && world.rank() == 3) group.all_reduce(tensor);
  });
  EXPECT_THAT(messages, ElementsAre("", "", "",
                                    "rank 3: collective 4 of the group of ranks 1 and 3 timed out after 5 s: rank 1 "
                                    "has not arrived (it is at collective 3); rank 1 is at all_reduce of 8 Float "
                                    "(collective 3), rank 3 is at all_reduce of 8 Float (collective 4); while ranks "
                                    "wait, `yoke stack` shows the place in the program"));
}

TEST(Group, AMessageThatDoesNotComeIsOfTheRankThatShouldHaveSentIt) {
  const auto messages = without(4, 3, [](World& world, bool comes) {
    auto group = world.split(world.rank() % 2);
    if (comes && world.rank() == 1) group.receive(at::zeros({1}), 1);
  });
  EXPECT_THAT(messages[1], HasSubstr("rank 1: a message between it and rank 3 timed out after 5 s: rank 3 is at "
                                     "collective 0 of the group of ranks 1 and 3, and this rank at 0"));
}

TEST(Group, MessagesBetweenTwoRanksAreNoCollectivesThatOthersHaveMissed) {
  const auto messages = without(3, 1, [](World& world, bool comes) {
    const auto tensor = at::zeros({4});
    for (int i = 0; i < 5; ++i) {
      if (world.rank() == 0) world.send(tensor, 1);
      if (world.rank() == 1) world.receive(tensor, 0);
    }
    if (comes) world.all_reduce(tensor);
  });
  for (const size_t rank : {0, 2}) {
    EXPECT_THAT(messages[rank], HasSubstr("collective 1 timed out after 5 s: rank 1 has not arrived; "));
  }
}

TEST(Group, AFailureInAGroupIsHeardByTheWholeJob) {
  const auto messages = without(4, 3, [](World& world, bool comes) {
    auto group = world.split(world.rank() / 2);
    if (comes) world.barrier();
    group.fail(Error(ErrorCode::kDataLoss, "its batch is empty"));
  });
  EXPECT_EQ(messages[3], "rank 3: its batch is empty");
  for (const size_t rank : {0, 1, 2}) {
    EXPECT_THAT(messages[rank], HasSubstr("rank 3 has not arrived"));
    EXPECT_THAT(messages[rank], HasSubstr("reported before: rank 3: its batch is empty"));
  }
}

TEST(Group, WhatFailsOnOneOfItsRanksFailsOnAll) {
  run_ranks(4, [](World& world) {
    auto group = world.split(world.rank() % 2);
    const auto message = [&](const std::function<void()>& call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        return error.what();
      }
      return "";
    };
    const auto failed = message([&] {
      on_all_ranks(group, "reading", [&] {
        if (world.rank() == 3) throw Error(ErrorCode::kInvalidArgument, "no such file");
      });
    });
    EXPECT_EQ(failed, world.rank() == 3 ? "no such file" : world.rank() == 1 ? "reading: rank 3: no such file" : "");
    const auto differs = message([&] {
      check_same_on_all_ranks(group, {{"weight", at::zeros({world.rank() == 3 ? 2 : 1})}});
    });
    EXPECT_THAT(differs, HasSubstr(world.rank() % 2 == 0 ? ""
                                                         : "on rank 3 it has 'weight Float [2]' where rank 1 has "
                                                           "'weight Float [1]'"));
    EXPECT_EQ(differs.empty(), world.rank() % 2 == 0);
  });
}

// What rank 0 alone calls, such as the saving of a checkpoint, meets what the other ranks call next.
TEST(Group, AnotherRanksCallIsNotTakenForAStatus) {
  const std::vector<std::pair<const char*, std::function<void(World & world)>>> calls = {
      {"saving: rank 1 has called something else", [](World& world) { world.all_gather_text("Zebra"); }},
      {"saving: rank 1 has called something else", [](World& world) { on_all_ranks(world, "reading", [] {}); }},
      {"rank 1 has called another collective", [](World& world) { world.all_gather(at::zeros({2}, at::kLong)); }},
  };
  for (const auto& [message, call] : calls) {
    run_ranks(2, [&message = message, &call = call](World& world) {
      try {
        if (world.rank() == 1) return call(world);
        on_all_ranks(world, "saving", [] {});
        ADD_FAILURE() << "nothing was thrown: " << message;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
        if (world.rank() == 0) {
          EXPECT_THAT(error.what(), HasSubstr(message));
        }
        EXPECT_THAT(error.what(), HasSubstr("call them on all ranks, in the same order"));
      }
    });
  }
}

// Ranks that wait in different collectives of the same number end long before the timeout, all with the same words.
TEST(Group, RanksInDifferentCollectivesEndEarly) {
  struct Case {
    const char* words;
    std::function<void(World&world)> first, others;
  };
  const auto reduce = [](World& world) { world.all_reduce(at::zeros({8})); };
  const auto gather_of_a_saving = [](World& world) {
    const Activity activity(world, "saving a checkpoint");
    world.all_gather(at::zeros({2}));
  };
  const auto start_and_reduce = [&](World& world) {
    const auto pending = world.start_all_gather(at::zeros({6}), at::zeros({2}));
    reduce(world);
  };
  const auto scatter = [](World& world) { world.reduce_scatter(at::zeros({2}), at::zeros({6})); };
  const auto stop = [](World& world) {
    for (int i = 0; i < 3; ++i) world.should_stop();
  };
  const auto stop_once = [&](World& world) {
    world.should_stop();
    reduce(world);
  };
  const Case cases[] = {
      {"rank 0 is at saving a checkpoint (collective 2), ranks 1 and 2 are at all_reduce of 8 Float (collective 2): ",
       gather_of_a_saving, reduce},
      {"collective 2 was ", start_and_reduce, reduce},
      {"(collective 2), ranks 1 and 2 are at saving a checkpoint", scatter, gather_of_a_saving},
      {"collective 4 was ", stop, stop_once},  // the first should_stop() counts twice
  };
  for (const auto& one_case : cases) {
    std::mutex mutex;
    std::vector<std::string> messages;
    EXPECT_THROW(run_ranks(
                     3,
                     [&](World& world) {
                       try {
                         world.barrier();
                         (world.rank() == 0 ? one_case.first : one_case.others)(world);
                       } catch (const Error& error) {
                         EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.what();
                         const std::lock_guard lock(mutex);
                         messages.emplace_back(error.what());
                         throw;
                       }
                     },
                     std::chrono::seconds(20)),
                 Error);
    ASSERT_EQ(messages.size(), 3u);
    for (const auto& message : messages) {
      EXPECT_THAT(message, HasSubstr("the ranks wait in different collectives: "));
      EXPECT_THAT(message, HasSubstr(one_case.words));
      EXPECT_THAT(message, HasSubstr("all of them must call the same ones"));
      EXPECT_THAT(message, HasSubstr("`yoke stack`"));
    }
  }
}

TEST(Group, ARankThatFailsBeforeItsFirstShouldStopEndsTheOthers) {
  std::string message;
  EXPECT_THROW(run_ranks(
                   2,
                   [&](World& world) {
                     world.barrier();
                     try {
                       if (world.rank() == 0) world.fail(Error(ErrorCode::kInvalidArgument, "it has failed"));
                       world.should_stop();
                     } catch (const Error& error) {
                       if (world.rank() == 1) message = error.what();
                       throw;
                     }
                   },
                   std::chrono::seconds(60)),
               Error);
  EXPECT_THAT(message, HasSubstr("lost its connection to another rank"));
  EXPECT_THAT(message, HasSubstr("it has failed"));
}

TEST(SameOnAllRanks, SaysWhatDiffers) {
  EXPECT_EQ(first_difference("a\nb\n", "a\nb\n"), "");
  EXPECT_EQ(first_difference("a\nb\n", "a\n"), "it lacks 'b' of rank 0");
  EXPECT_EQ(first_difference("a\n", "a\nc\n"), "it has 'c', which rank 0 lacks");
  EXPECT_EQ(first_difference("a\nb\n", "x\nb\n"), "it has 'x' where rank 0 has 'a'");
  EXPECT_EQ(first_difference("a\nb\n", "x\nb\n", 4), "it has 'x' where rank 4 has 'a'");
}

TEST(Group, EndsWithItsWorld) {
  std::optional<Group> group;
  {
    World world(RankEnv{}, {.device = c10::Device(c10::kCPU)});
    group = world.split(0);
    group->barrier();
    world.shutdown();
  }
  EXPECT_THROW(group->barrier(), Error);
}

}  // namespace
}  // namespace yoke::dist
