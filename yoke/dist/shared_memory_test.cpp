// Tests collectives in shared memory through c10d. yoke/dist/shared has tests of their parts, tests/dist those with
// real processes.
#include "yoke/dist/detail/shared_memory.h"

#include <ATen/Functions.h>
#include <ATen/core/ivalue.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"

namespace yoke::dist {
namespace {

using fakes::run_ranks;
using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

/// Elements: in a slot, in one round, in many rounds; odd.
const std::vector<int64_t> kSizes = {0, 1, 3, 1000, 5001, 300'007};

constexpr at::ScalarType kTypes[] = {at::kBool, at::kByte, at::kChar,     at::kShort, at::kInt,
                                     at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};

/// What rank `rank` contributes: small whole numbers, so that any order gives the same sum and product.
at::Tensor tensor_of(int64_t rank, int64_t size, at::ScalarType type) {
  auto numbers = at::arange(size, at::kLong).add(rank * 7).remainder(5);
  if (type == at::kBool) return numbers.gt(2);
  return numbers.sub(type == at::kByte ? 0 : 2).to(type);
}

at::Tensor all_tensors(int64_t num_ranks, int64_t size, at::ScalarType type) {
  Tensors all;
  for (int64_t rank = 0; rank < num_ranks; ++rank) all.push_back(tensor_of(rank, size, type));
  return at::stack(all);
}

at::Tensor expected_of(c10d::ReduceOp::RedOpType op, const at::Tensor& all) {
  if (all.scalar_type() == at::kBool) {
    return op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::MAX ? all.any(0) : all.all(0);
  }
  switch (op) {
    case c10d::ReduceOp::SUM: return all.sum(0).to(all.scalar_type());
    case c10d::ReduceOp::PRODUCT: return all.prod(0).to(all.scalar_type());
    case c10d::ReduceOp::MIN: return all.amin(0);
    default: return all.amax(0);
  }
}

/// What the exception that `call` throws says; empty if there is none.
std::string what_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

c10d::Backend& backend_of(const World& world) { return *world.process_group().getBackend(c10::DeviceType::CPU); }

TEST(SharedMemory, IsWhatRanksOfOneHostUse) {
  run_ranks(3, [](World& world) {
    EXPECT_TRUE(is_shared_memory(backend_of(world)));
    auto group = world.split(world.rank() / 2);
    EXPECT_EQ(is_shared_memory(*group.process_group().getBackend(c10::DeviceType::CPU)), group.size() > 1);
  });
}

TEST(SharedMemory, ReducesAllTypesAsLibtorchDoes) {
  for (const int64_t num_ranks : {2, 3, 5}) {
    run_ranks(num_ranks, [&](World& world) {
      for (const auto type : kTypes) {
        for (const int64_t size : kSizes) {
          const auto all = all_tensors(num_ranks, size, type);
          for (const auto op :
               {c10d::ReduceOp::SUM, c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
            if (size > 5001 && op != c10d::ReduceOp::SUM) continue;
            Tensors own = {tensor_of(world.rank(), size, type)};
            c10d::AllreduceOptions options;
            options.reduceOp = op;
            world.process_group().allreduce(own, options)->wait();
            ASSERT_TRUE(at::equal(own[0], expected_of(op, all)))
                << c10::toString(type) << " " << size << " " << static_cast<int>(op);
          }
        }
      }
    });
  }
}

TEST(SharedMemory, ScattersGathersAndCopiesAnySize) {
  for (const int64_t num_ranks : {2, 3, 5}) {
    run_ranks(num_ranks, [&](World& world) {
      for (const auto type : {at::kFloat, at::kLong, at::kBool, at::kHalf}) {
        for (const int64_t size : kSizes) {
          const auto all = all_tensors(num_ranks, size, type);
          const auto own = tensor_of(world.rank(), size, type);
          ASSERT_TRUE(at::equal(world.all_gather(own), all));
          const auto flat = at::empty({num_ranks * size}, own.options());
          world.all_gather_into(flat, own);
          ASSERT_TRUE(at::equal(flat, all.flatten()));
          for (int64_t root = 0; root < num_ranks; root += 2) {
            const auto first = own.clone(), part = at::empty_like(own);
            world.broadcast(first, root);
            ASSERT_TRUE(at::equal(first, all[root]));
            const auto gathered = world.gather(own, root);
            ASSERT_EQ(gathered.defined(), world.rank() == root);
            if (gathered.defined()) {
              ASSERT_TRUE(at::equal(gathered, all));
            }
            world.scatter(part, world.rank() == root ? all : at::Tensor(), root);
            ASSERT_TRUE(at::equal(part, own));
            Tensors reduced = {own.clone()};
            c10d::ReduceOptions options;
            options.rootRank = root;
            world.process_group().reduce(reduced, options)->wait();
            if (world.rank() == root) {
              ASSERT_TRUE(at::equal(reduced[0], expected_of(c10d::ReduceOp::SUM, all)));
            }
          }
          const auto part = at::empty_like(own);
          const auto rows = own.repeat({num_ranks});
          world.reduce_scatter(part, rows);
          ASSERT_TRUE(at::equal(part, expected_of(c10d::ReduceOp::SUM, all)));
          const auto exchanged = at::empty_like(rows);
          world.all_to_all(exchanged, rows);
          ASSERT_TRUE(at::equal(exchanged, all.flatten()));
        }
      }
      world.barrier();
      world.process_group().barrier()->wait();
    });
  }
}

TEST(SharedMemory, RowsOfAllToAllMayDiffer) {
  run_ranks(3, [](World& world) {
    for (const int64_t unit : {0, 1, 50'000}) {  // rank r sends r * unit rows to each rank
      const int64_t rank = world.rank();
      const auto sent = at::full({3 * rank * unit, 2}, rank, at::kInt);
      Splits splits{.input = std::vector<int64_t>(3, rank * unit), .output = {0, unit, 2 * unit}};
      const auto received = at::full({3 * unit, 2}, -1, at::kInt);
      world.all_to_all(received, sent, splits);
      const auto wanted = at::cat({at::full({unit, 2}, 1, at::kInt), at::full({2 * unit, 2}, 2, at::kInt)});
      EXPECT_TRUE(at::equal(received, wanted));
    }
  });
}

TEST(SharedMemory, ListsOfTensorsAreOne) {
  run_ranks(2, [](World& world) {
    auto& group = world.process_group();
    const auto mark = static_cast<double>(world.rank() + 1);
    Tensors several = {at::full({3}, mark), at::full({20'000}, 2 * mark), at::full({4, 3}, mark).t()};
    group.allreduce_coalesced(several)->wait();
    EXPECT_TRUE(at::equal(several[0], at::full({3}, 3.0)));
    EXPECT_TRUE(at::equal(several[1], at::full({20'000}, 6.0)));
    EXPECT_TRUE(at::equal(several[2], at::full({3, 4}, 3.0)));

    Tensors part = {at::zeros({3})};
    std::vector<Tensors> parts = {{at::full({3}, mark), at::full({3}, 10 * mark)}};
    group.reduce_scatter(part, parts)->wait();
    EXPECT_TRUE(at::equal(part[0], at::full({3}, world.rank() == 0 ? 3.0 : 30.0)));

    Tensors received = {at::zeros({1 + world.rank()}), at::zeros({1 + world.rank()})};
    Tensors sent = {at::full({1}, mark), at::full({2}, 10 * mark)};
    group.alltoall(received, sent)->wait();
    EXPECT_TRUE(at::equal(received[1], at::full({1 + world.rank()}, world.rank() == 0 ? 2.0 : 20.0)));

    const auto wide = at::zeros({3, 4});
    std::vector<Tensors> columns = {{wide.select(1, 1), wide.select(1, 3)}};  // not contiguous
    Tensors own = {at::full({3}, mark)};
    group.allgather(columns, own)->wait();
    EXPECT_TRUE(at::equal(wide, at::tensor({0, 1, 0, 2}).to(at::kFloat).expand({3, 4})));
  });
}

// Callers such as DistributedDataParallel never wait for the work, only for its future.
TEST(SharedMemory, FuturesEndByThemselves) {
  run_ranks(2, [](World& world) {
    for (const int64_t size : {1, 100'000}) {
      std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
      std::vector<Tensors> tensors;
      for (int i = 0; i < 20; ++i) {
        tensors.push_back({at::full({size}, world.rank() + i)});
        futures.push_back(world.process_group().allreduce(tensors.back())->getFuture());
      }
      for (size_t i = 0; i < futures.size(); ++i) {
        futures[i]->wait();
        const auto result = futures[i]->value().toTensorVector();
        ASSERT_EQ(result.size(), 1u);
        ASSERT_TRUE(at::equal(result[0], at::full({size}, 1 + 2 * static_cast<int64_t>(i))));
      }
    }
    Tensors tensor = {at::ones({2})};
    const auto work = world.process_group().allreduce(tensor);
    work->wait();
    EXPECT_TRUE(work->isCompleted() && work->isSuccess());
    EXPECT_TRUE(work->getFuture()->completed());
    EXPECT_EQ(work->getFuture()->value().toTensorVector()[0].sum().item<float>(), 4);
  });
}

// Tensors in the shared file are reduced in place, those beside it through chunks; all ranks decide alike.
// DDP's hook PowerSGD waits so.
TEST(SharedMemory, WhatFollowsAFutureMayWaitForOthers) {
  run_ranks(2, [](World& world) {
    auto& group = world.process_group();
    for (const int64_t size : {4, 300'007}) {
      Tensors first = {at::ones({size})}, second = {at::ones({size})}, third = {at::ones({size})};
      const auto reduce = [&](Tensors& tensors) {
        c10d::AllreduceOptions options;
        options.asyncOp = true;
        return group.allreduce(tensors, options)->getFuture();
      };
      const auto last = reduce(first)->then(
          [&](c10::ivalue::Future&) {
            const auto inner = reduce(second)->then(
                [&](c10::ivalue::Future&) {
                  reduce(third)->waitAndThrow();
                  return third[0];
                },
                c10::TensorType::get());
            inner->waitAndThrow();
            return inner->value();
          },
          c10::TensorType::get());
      last->waitAndThrow();
      for (const auto& tensors : {first, second, third}) ASSERT_TRUE(tensors[0].eq(2).all().item<bool>());
    }
  });
}

TEST(SharedMemory, TensorsMayLieAnyHow) {
  run_ranks(3, [](World& world) {
    auto& backend = backend_of(world);
    for (const int64_t size : {4, 100'000}) {
      const auto numbers = at::arange(3 * size * 2, at::kLong).view({2, 3 * size});
      const auto whole = numbers.t(), gaps = at::zeros({3 * size, 5}, at::kLong);
      gaps.slice(1, 0, 4, 2).copy_(whole);
      for (auto input : {whole, gaps.slice(1, 0, 4, 2)}) {
        auto part = at::zeros({2, size}, at::kLong).t();
        backend._reduce_scatter_base(part, input, {})->wait();
        ASSERT_TRUE(at::equal(part, whole.narrow(0, world.rank() * size, size) * 3));
        auto exchanged = at::zeros({2, 3 * size}, at::kLong).t();
        std::vector<int64_t> equal;
        auto own = (input + world.rank()).contiguous();
        backend.alltoall_base(exchanged, own, equal, equal, {})->wait();
        for (int64_t from = 0; from < 3; ++from) {
          ASSERT_TRUE(
              at::equal(exchanged.narrow(0, from * size, size), whole.narrow(0, world.rank() * size, size) + from));
        }
      }
    }
  });
}

TEST(SharedMemory, InputsMayLieInOutputs) {
  run_ranks(3, [](World& world) {
    auto& backend = backend_of(world);
    for (const int64_t size : {4, 100'000}) {
      for (int64_t at = 0; at < 3; ++at) {  // in its own place, and in that of others
        const auto of_rank = [&](int64_t rank) { return at::arange(size, at::kLong) + 1000 * rank; };
        auto all = at::zeros({3 * size}, at::kLong);
        auto own = all.narrow(0, at * size, size);
        own.copy_(of_rank(world.rank()));
        if (at == 1) {
          std::vector<Tensors> lists = {all.chunk(3)};
          Tensors inputs = {own};
          backend.allgather(lists, inputs, {})->wait();
        } else {
          backend._allgather_base(all, own, {})->wait();
        }
        ASSERT_TRUE(at::equal(all, at::cat({of_rank(0), of_rank(1), of_rank(2)}))) << at;

        auto sum = all.narrow(0, at * size, size);
        backend._reduce_scatter_base(sum, all, {})->wait();
        ASSERT_TRUE(at::equal(sum, of_rank(world.rank()) * 3)) << at;

        auto both = at::cat({of_rank(0), of_rank(1), of_rank(2)}) + 7 * world.rank();
        std::vector<int64_t> equal;
        backend.alltoall_base(both, both, equal, equal, {})->wait();
        for (int64_t from = 0; from < 3; ++from) {
          ASSERT_TRUE(at::equal(both.narrow(0, from * size, size), of_rank(world.rank()) + 7 * from));
        }
      }
    }
  });
}

TEST(SharedMemory, RootsMustBeRanks) {
  run_ranks(2, [](World& world) {
    auto& backend = backend_of(world);
    for (const int64_t root : {-5, 2, 99}) {
      Tensors own = {at::ones({3})};
      std::vector<Tensors> nothing;
      const c10d::BroadcastOptions broadcast{.rootRank = root};
      const c10d::ReduceOptions reduce{.rootRank = root};
      const c10d::GatherOptions gather{.rootRank = root};
      const c10d::ScatterOptions scatter{.rootRank = root};
      for (const std::function<void()>& call : std::vector<std::function<void()>>{
               [&] { backend.broadcast(own, broadcast); }, [&] { backend.reduce(own, reduce); },
               [&] { backend.gather(nothing, own, gather); }, [&] { backend.scatter(own, nothing, scatter); }}) {
        EXPECT_THAT(what_of(call), HasSubstr("invalid root rank"));
      }
    }
  });
}

// A child has the group of its parent, whose rank it is not.
TEST(SharedMemory, AForkedProcessIsNoRank) {
  run_ranks(2, [](World& world) {
    if (world.rank() == 1) {
      const pid_t child = fork();
      if (child == 0) {
        Tensors own = {at::ones({3})};
        try {
          backend_of(world).allreduce(own, {});
        } catch (const c10::Error& error) {
          _exit(std::string_view(error.what()).find("was forked from a rank") == std::string_view::npos ? 2 : 0);
        }
        _exit(1);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    const auto own = at::ones({3});
    world.all_reduce(own);
    EXPECT_TRUE(own.eq(2).all().item<bool>());
  });
}

TEST(SharedMemory, TensorsInTheSharedFileAreReducedInPlace) {
  for (const int64_t num_ranks : {2, 3}) {
    run_ranks(num_ranks, [&](World& world) {
      ASSERT_TRUE(backend_of(world).supportsTensorAlloc(0));
      for (const auto type : {at::kFloat, at::kBFloat16, at::kByte}) {
        for (const int64_t size : kSizes) {
          const auto all = all_tensors(num_ranks, size, type);
          for (const int64_t num_shared : {num_ranks, num_ranks - 1}) {
            auto own = tensor_of(world.rank(), size, type);
            if (world.rank() < num_shared) {
              own = backend_of(world).allocateTensor(size + 8, own.options()).narrow(0, 8, size).copy_(own);
            }
            world.all_reduce(own);
            ASSERT_TRUE(at::equal(own, expected_of(c10d::ReduceOp::SUM, all))) << size;
          }
        }
      }
    });
  }
}

TEST(SharedMemory, AveragesAreSumsThatAreDivided) {
  run_ranks(3, [](World& world) {
    auto& group = world.process_group();
    for (const auto type : {at::kFloat, at::kHalf, at::kComplexFloat}) {
      for (const int64_t size : kSizes) {
        const auto own = at::full({size}, world.rank() * 3, type), mean = at::full({size}, 3, type);
        c10d::AllreduceOptions options;
        options.reduceOp = c10d::ReduceOp::AVG;
        Tensors everywhere = {own.clone()}, list = {own.clone(), own.clone()};
        group.allreduce(everywhere, options)->wait();
        ASSERT_TRUE(at::equal(everywhere[0], mean));
        c10d::AllreduceCoalescedOptions of_list;
        of_list.reduceOp = c10d::ReduceOp::AVG;
        group.allreduce_coalesced(list, of_list)->wait();
        ASSERT_TRUE(at::equal(list[0], mean) && at::equal(list[1], mean));
        c10d::ReduceScatterOptions of_parts;
        of_parts.reduceOp = c10d::ReduceOp::AVG;
        auto part = at::empty_like(own), rows = own.repeat({3});
        backend_of(world)._reduce_scatter_base(part, rows, of_parts)->wait();
        ASSERT_TRUE(at::equal(part, mean));
      }
    }
  });
}

TEST(SharedMemory, MessagesOfAllTypesAndSizesArrive) {
  run_ranks(3, [](World& world) {
    const int64_t next = (world.rank() + 1) % 3, last = (world.rank() + 2) % 3;
    for (const auto type : {at::kFloat, at::kLong, at::kBool, at::kHalf, at::kComplexFloat, at::kFloat8_e4m3fn}) {
      for (const int64_t size : kSizes) {
        const auto own = tensor_of(world.rank(), size, at::kLong).to(type), received = at::empty_like(own);
        auto sending = world.start_send(own, next);
        world.receive(received, last);
        sending.wait();
        const auto wanted = tensor_of(last, size, at::kLong).to(type);
        ASSERT_TRUE(at::equal(received.contiguous().view(at::kByte), wanted.contiguous().view(at::kByte)))
            << c10::toString(type) << " " << size;
      }
    }
  });
}

TEST(SharedMemory, MessagesHaveTagsSendersAndFutures) {
  run_ranks(3, [](World& world) {
    auto& group = world.process_group();
    Tensors one = {at::full({3}, world.rank())}, many = {at::full({100'000}, 10 * world.rank())};
    if (world.rank() > 0) {
      const auto first = group.send(many, 0, 4), second = group.send(one, 0, 5);
      first->wait();
      second->wait();
      return;
    }
    for (const int64_t peer : {2, 1}) {
      group.recv(one, static_cast<int>(peer), 5)->wait();
      EXPECT_TRUE(at::equal(one[0], at::full({3}, peer)));
    }
    std::set<int> senders;
    for (int i = 0; i < 2; ++i) {
      const auto work = group.recvAnysource(many, 4);
      const auto future = work->getFuture();  // nobody waits for the work
      future->wait();
      EXPECT_EQ(future->value().toTensorVector()[0].data_ptr(), many[0].data_ptr());
      senders.insert(work->sourceRank());
      EXPECT_TRUE(at::equal(many[0], at::full({100'000}, 10 * work->sourceRank())));
    }
    EXPECT_EQ(senders, (std::set<int>{1, 2}));
    Tensors columns = {at::zeros({3, 4}).t()};
    EXPECT_THROW(group.recv(columns, 1, 0), c10::Error);
    EXPECT_THROW(group.send(one, 0, 0), c10::Error) << "to itself";
    EXPECT_THROW(group.send(one, 3, 0), c10::Error);
  });
}

TEST(SharedMemory, AveragesOfIntegersAreRefused) {
  run_ranks(2, [](World& world) {
    const auto own = at::ones({3}, at::kInt);
    EXPECT_THAT(what_of([&] { world.all_reduce(own, ReduceOp::kMean); }),
                HasSubstr("all_reduce: the mean of Int numbers is not one of them"));
    Tensors tensors = {own};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::AVG;
    EXPECT_THAT(what_of([&] { world.process_group().allreduce(tensors, options); }),
                HasSubstr("averages of Int are not whole numbers"));
    EXPECT_TRUE(own.eq(1).all().item<bool>()) << "nothing was added up";
  });
}

TEST(SharedMemory, WhatIsRareGoesOverGloo) {
  run_ranks(2, [](World& world) {
    Tensors bits = {at::full({3}, world.rank() == 0 ? 5 : 6, at::kInt)};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::BOR;
    world.process_group().allreduce(bits, options)->wait();
    EXPECT_TRUE(at::equal(bits[0], at::full({3}, 7, at::kInt)));
    c10d::ReduceScatterOptions of_parts;
    of_parts.reduceOp = c10d::ReduceOp::BOR;
    Tensors part = {at::zeros({3, 5}, at::kInt)};
    std::vector<Tensors> parts = {{at::full({3, 5}, 1 + world.rank(), at::kInt), at::full({3, 5}, 4, at::kInt)}};
    world.process_group().reduce_scatter(part, parts, of_parts)->wait();
    EXPECT_TRUE(at::equal(part[0], at::full({3, 5}, world.rank() == 0 ? 3 : 4, at::kInt)));
    const auto sparse = at::eye(4).mul(world.rank() + 1).to_sparse();
    EXPECT_THAT(what_of([&] { world.all_reduce(sparse); }), HasSubstr("the tensor is not dense, but Sparse"));
    Tensors sparse_ones = {sparse};
    world.process_group().allreduce(sparse_ones, {})->wait();
    EXPECT_TRUE(at::equal(sparse.to_dense(), at::eye(4) * 3));
  });
}

TEST(SharedMemory, CountsItsCollectives) {
  run_ranks(2, [](World& world) {
    const auto before = backend_of(world).getSequenceNumberForGroup();
    world.all_reduce(at::ones({3}));
    world.broadcast(at::ones({30'000}));
    EXPECT_EQ(backend_of(world).getSequenceNumberForGroup(), before + 2);
  });
}

TEST(SharedMemory, ALostRankAndTensorsOfOtherSizesAreErrors) {
  std::atomic<bool> has_ended = false;
  EXPECT_THROW(run_ranks(2,
                         [&](World& world) {
                           if (world.rank() == 1) throw Error(ErrorCode::kDataLoss, "out of rice");
                           try {
                             world.all_reduce(at::ones({3}));
                           } catch (const Error& error) {
                             EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
                             EXPECT_THAT(error.what(),
                                         HasSubstr("lost its connection to another rank: rank 1 has not"));
                             has_ended = true;
                             throw;
                           }
                         }),
               Error);
  EXPECT_TRUE(has_ended);
  run_ranks(
      2,
      [](World& world) {
        try {
          Tensors tensors = {at::ones({world.rank() + 1})};
          world.process_group().allreduce(tensors)->wait();  // not known by name to Arrivals
          ADD_FAILURE();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
          EXPECT_THAT(error.what(), HasSubstr("rank 0 has called all_reduce of 1 Float with SUM, rank 1 has called "
                                              "all_reduce of 2 Float with SUM"));
        }
      },
      std::chrono::seconds(3));
}

/// What the error says that the ranks of a group of three get from `call`.
void expect_mismatch(const std::function<void(World& world)>& call, const std::string& text) {
  run_ranks(3, [&](World& world) {
    try {
      call(world);
      ADD_FAILURE() << "rank " << world.rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  });
}

TEST(SharedMemory, AnotherReductionOrRootIsNamed) {
  const std::pair<ReduceOp, std::string> others[] = {{ReduceOp::kMax, "MAX"}, {ReduceOp::kMean, "MEAN"}};
  for (const int64_t size : {8, 100'000}) {
    for (const auto& [op, name] : others) {
      const auto words = "called all_reduce of " + std::to_string(size) + " Float with ";
      expect_mismatch(
          [&, op = op](World& world) { world.all_reduce(at::ones({size}), world.rank() == 1 ? op : ReduceOp::kSum); },
          "collective 1 is not the same on all ranks: ranks 0, 2 have " + words + "SUM, rank 1 has " + words + name +
              ": all of them");
    }
  }
  expect_mismatch(
      [](World& world) {
        const auto op = world.rank() == 2 ? ReduceOp::kSum : ReduceOp::kMean;
        world.reduce_scatter(at::empty({2}, at::kHalf), at::ones({6}, at::kHalf), op);
      },
      "ranks 0, 1 have called reduce_scatter of 6 Half with MEAN, rank 2 has called reduce_scatter of 6 Half with SUM");
  expect_mismatch(
      [](World& world) {
        world.broadcast(at::ones({3}, at::kLong), world.rank());  // each from itself
        world.all_reduce(at::ones({3}));
      },
      "rank 0 has called broadcast of Long with root 0, rank 1 has called broadcast of Long with root 1, rank 2 has "
      "called broadcast of Long with root 2");
}

}  // namespace
}  // namespace yoke::dist
