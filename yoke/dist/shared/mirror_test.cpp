// Groups over several hosts, each with a memory of its own. engine_test.cpp and messages_test.cpp run over two hosts,
// too, and kill_test.cpp with processes.
#include "yoke/dist/shared/mirror.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstring>
#include <future>
#include <list>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>

#include "yoke/base/environment.h"
#include "yoke/base/text.h"
#include "yoke/dist/shared/firewall_test.h"
#include "yoke/dist/shared/run_engines_test.h"

namespace yoke::dist::shared {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

/// Unequal hosts, whose ranks are not in a row.
const Hosts kThreeHosts = {{0, 2, 4}, {1}, {3, 5}};

/// Of floating point types 0, 1 and 2, whose sums and products are the same in any order.
Bytes elements_of(int64_t rank, Type type, int64_t count) {
  std::minstd_rand random(static_cast<unsigned>(rank * 100 + count + 1));
  Bytes bytes(static_cast<size_t>(count * size_of(type)));
  for (int64_t i = 0; i < count; ++i) {
    auto* const at = bytes.data() + i * size_of(type);
    const auto number = random() % 50;
    if (type == Type::kF32) {
      const auto value = static_cast<float>(number % 3);
      std::memcpy(at, &value, sizeof value);
    } else if (type == Type::kF64) {
      const auto value = static_cast<double>(number % 3);
      std::memcpy(at, &value, sizeof value);
    } else if (type == Type::kF16 || type == Type::kBF16) {
      constexpr uint16_t kWhole[2][3] = {{0, 0x3c00, 0x4000}, {0, 0x3f80, 0x4000}};
      const auto value = kWhole[type == Type::kF16 ? 0 : 1][number % 3];
      std::memcpy(at, &value, sizeof value);
    } else {
      *at = static_cast<std::byte>(type == Type::kBool ? number % 2 : number);
    }
  }
  return bytes;
}

TEST(SharedMirror, AllTypesAndOddSizes) {
  for (const auto& layout : {layout_of(6), tiny(6)}) {
    run_hosts(layout, kThreeHosts, [&](Engine& engine, int64_t rank) {
      for (int number = 0; number <= static_cast<int>(Type::kF64); ++number) {
        const auto type = static_cast<Type>(number);
        for (const int64_t count : {0, 1, 3, 1000, 30'007}) {
          for (const auto reduction : {Reduction::kSum, Reduction::kProduct, Reduction::kMin, Reduction::kMax}) {
            if (count > 1000 && (reduction != Reduction::kSum || type < Type::kF16)) continue;
            std::vector<Bytes> all;
            std::vector<const std::byte*> sources;
            for (int64_t other = 0; other < 6; ++other) {
              sources.push_back(all.emplace_back(elements_of(other, type, count)).data());
            }
            auto own = all[static_cast<size_t>(rank)];
            const ReduceOptions options{
                .type = type, .reduction = reduction, .input = own.data(), .output = own.data(), .num_elements = count};
            EXPECT_EQ(start(engine, make_reduction(engine.layout(), rank, options), Driver::kWaiter).wait(engine), "");
            Bytes expected(own.size());
            reduce(type, reduction, expected.data(), sources, count);
            ASSERT_EQ(own, expected) << number << " " << count << " " << static_cast<int>(reduction);
          }
        }
      }
    });
  }
}

// Hosts add up their ranks' contributions first. All of them get the same rounding, and again the next time, whatever
// the size of a reduction is and wherever an element lies: DistributedDataParallel may make other buckets after a loss.
TEST(SharedMirror, AllRanksHaveTheSameBitsEachTime) {
  constexpr int64_t kSize = 50'001;
  std::vector<std::vector<float>> results;
  for (const int64_t piece : {kSize, kSize, int64_t{3'001}, int64_t{7'001}}) {
    std::vector<std::vector<float>> of_ranks(6);
    run_hosts(layout_of(6), kThreeHosts, [&](Engine& engine, int64_t rank) {
      auto& own = of_ranks[static_cast<size_t>(rank)];
      std::minstd_rand random(static_cast<unsigned>(rank) + 1);
      for (int64_t i = 0; i < kSize; ++i) own.push_back(static_cast<float>(random()) / 7);
      for (int64_t begin = 0; begin < kSize; begin += piece) {
        auto* const memory = reinterpret_cast<std::byte*>(own.data() + begin);
        const ReduceOptions sum{
            .type = Type::kF32, .input = memory, .output = memory, .num_elements = std::min(piece, kSize - begin)};
        EXPECT_EQ(start(engine, make_reduction(engine.layout(), rank, sum)).wait(engine), "");
      }
    });
    results.insert(results.end(), of_ranks.begin(), of_ranks.end());
  }
  for (const auto& result : results) ASSERT_EQ(result, results[0]);
}

TEST(SharedMirror, ReduceScatterGivesEachRankItsBlock) {
  for (const int64_t block : {1, 77, 30'001}) {
    run_hosts(layout_of(6), kThreeHosts, [&](Engine& engine, int64_t rank) {
      std::vector<int64_t> input(static_cast<size_t>(6 * block)), output(static_cast<size_t>(block));
      std::iota(input.begin(), input.end(), rank * 1000);
      const ReduceOptions options{.type = Type::kI64,
                                  .input = reinterpret_cast<const std::byte*>(input.data()),
                                  .output = reinterpret_cast<std::byte*>(output.data()),
                                  .num_elements = 6 * block,
                                  .scatters = true};
      EXPECT_EQ(start(engine, make_reduction(engine.layout(), rank, options)).wait(engine), "");
      for (int64_t i = 0; i < block; ++i) ASSERT_EQ(output[static_cast<size_t>(i)], 6 * (rank * block + i) + 15'000);
    });
  }
}

// Ranks that send nothing go ahead, and say seldom what they have taken.
TEST(SharedMirror, LargeOnesOfAllKindsFollowEachOther) {
  auto many_chunks = tiny(6);
  many_chunks.num_chunks = 5;
  for (const auto& layout : {tiny(6), many_chunks}) {
    run_hosts(layout, kThreeHosts, [&](Engine& engine, int64_t rank) {
      std::minstd_rand random(5);  // the same on all ranks
      for (int turn = 0; turn < 60; ++turn) {
        std::vector<Pending> pending;
        std::list<Bytes> memory;
        std::vector<std::pair<const Bytes*, std::byte>> expected;
        for (int i = 0; i < 3; ++i) {
          const auto kind = static_cast<uint32_t>(random() % 4);
          const auto root = static_cast<int64_t>(random() % 6), size = static_cast<int64_t>(400 + random() % 3000);
          const auto mark = [&](int64_t of) { return std::byte(10 * turn + 3 * i + of); };
          const auto add = [&](std::byte value) -> Bytes& {
            return memory.emplace_back(static_cast<size_t>(size), value);
          };
          auto& own = add(mark(rank));
          CopyOptions copy{.kind = 10 + kind, .root = static_cast<uint32_t>(root), .bytes = size};
          copy.receive.resize(6);
          if (kind == 0) {  // from one to all
            copy.is_from_root = true;
            if (rank == root) copy.send = {own};
            if (rank != root) copy.receive[static_cast<size_t>(root)] = own;
            expected.emplace_back(&own, mark(root));
          } else if (kind == 1) {  // from all to one
            copy.send = {own};
            for (size_t other = 0; rank == root && other < 6; ++other) {
              auto& received = add({});
              copy.receive[other] = received;
              expected.emplace_back(&received, mark(static_cast<int64_t>(other)));
            }
          } else if (kind == 2) {  // to each from one
            copy.is_from_root = copy.for_each = true;
            for (int64_t other = 0; rank == root && other < 6; ++other) copy.send.emplace_back(add(mark(other)));
            auto& received = add({});
            copy.receive[static_cast<size_t>(root)] = received;
            expected.emplace_back(&received, mark(rank));
          }
          if (kind < 3) {
            pending.push_back(start(engine, make_copy(engine.layout(), rank, copy)));
            continue;
          }
          const ReduceOptions most{.root = static_cast<uint32_t>(root),
                                   .type = Type::kU8,
                                   .reduction = Reduction::kMax,
                                   .input = own.data(),
                                   .output = rank == root ? own.data() : nullptr,
                                   .num_elements = size};
          std::byte greatest{};
          for (int64_t other = 0; other < 6; ++other) greatest = std::max(greatest, mark(other));
          expected.emplace_back(&own, rank == root ? greatest : mark(rank));
          pending.push_back(start(engine, make_reduction(engine.layout(), rank, most)));
        }
        for (const auto& one : pending) ASSERT_EQ(one.wait(engine), "");
        for (const auto& [bytes, value] : expected) ASSERT_EQ(*bytes, Bytes(bytes->size(), value)) << turn;
      }
    });
  }
}

TEST(SharedMirror, ManySmallOnes) {
  run_hosts(layout_of(3), {{0, 1}, {2}}, [&](Engine& engine, int64_t rank) {
    for (int32_t i = 0; i < 1000; ++i) {
      std::vector<int32_t> own(4, static_cast<int32_t>(rank) + i);
      std::vector<int32_t> other(1 + static_cast<size_t>(i) % 5, static_cast<int32_t>(rank * 10'000) + i);
      auto* const memory = reinterpret_cast<std::byte*>(own.data());
      std::vector<Pending> pending;
      if (rank != 1) {
        pending.push_back(start(engine, Message{.is_sent = rank == 2,
                                                .peer = 2 - rank,
                                                .data = reinterpret_cast<std::byte*>(other.data()),
                                                .bytes = std::ssize(other) * 4}));
      }
      const ReduceOptions sum{.type = Type::kI32, .input = memory, .output = memory, .num_elements = 4};
      pending.push_back(start(engine, make_reduction(engine.layout(), rank, sum), Driver::kWaiter));
      for (const auto& one : pending) ASSERT_EQ(one.wait(engine), "");
      ASSERT_EQ(own[3], 3 + 3 * i);
      ASSERT_EQ(other[0], (rank == 1 ? 10'000 : 20'000) + i);
    }
  });
}

// Rank 2 has announced what it would send, and does not go on. Rank 0 waits for what rank 1 merges, which waits for it.
TEST(SharedMirror, ARankThatDoesNotGoOnIsNamedAndNotTheOneThatMerges) {
  std::barrier<> all(3);
  run_hosts(layout_of(3), {{0}, {1, 2}}, [&](Engine& engine, int64_t rank) {
    std::vector<int64_t> numbers(100'000, rank);
    auto* const memory = reinterpret_cast<std::byte*>(numbers.data());
    const ReduceOptions sum{.type = Type::kI64, .input = memory, .output = memory, .num_elements = std::ssize(numbers)};
    all.arrive_and_wait();
    const auto pending =
        start(engine, make_reduction(engine.layout(), rank, sum), Driver::kWaiter, std::chrono::seconds(1));
    if (rank != 2) {
      EXPECT_EQ(pending.wait(engine), "Timed out waiting for rank 2 of the group");
    }
    all.arrive_and_wait();
    engine.stop();
  });
}

// Rank 1 carries what rank 0 sends to its host, and is stopped. So rank 2 does not hear from rank 0, which is alive.
TEST(SharedMirror, AStoppedCarrierIsNamedAndNotTheRankThatItCarries) {
  const Hosts hosts = {{0}, {1, 2}};
  std::vector<UniqueFd> files(2);
  std::vector<std::shared_ptr<Segment>> segments;
  for (auto& file : files) segments.push_back(Segment::create(layout_of(3), file));
  std::vector<Listener> listeners;
  LinkOptions options{.hosts = hosts, .until = Clock::now() + std::chrono::seconds(60)};
  for (int rank = 0; rank < 3; ++rank) options.addresses.push_back(listeners.emplace_back("127.0.0.1").address());
  const Pipe go = make_pipe();
  std::vector<pid_t> ranks;
  for (int64_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(fork());
    if (ranks.back() != 0) continue;
    const auto segment = segments[host_of(hosts, rank)];
    options.rank = rank;
    options.segment = segment.get();
    Engine engine(segment, {.rank = rank}, connect_hosts(listeners[static_cast<size_t>(rank)], options));
    const auto broadcast = [&](std::chrono::seconds timeout) {
      Bytes piece(8);
      CopyOptions copy{.kind = 1, .root = 0, .bytes = 8};
      copy.receive.resize(3);
      if (rank == 0) {
        copy.send = {piece};
      } else {
        copy.receive[0] = piece;
      }
      return start(engine, make_copy(engine.layout(), rank, copy), Driver::kWaiter, timeout).wait(engine);
    };
    std::byte nothing;
    CopyOptions barrier{.kind = 2, .send = {std::span(&nothing, 0)}, .bytes = 0};
    barrier.receive.assign(3, std::span(&nothing, 0));
    if (!start(engine, make_copy(engine.layout(), rank, barrier)).wait(engine).empty()) _exit(1);
    if (rank == 1) raise(SIGSTOP);
    // Rank 0 begins when the parent says that rank 1 has been stopped.
    char letter = 0;
    if (read(go.read_end.value(), &letter, 1) != 1) _exit(4);
    if (rank == 0) broadcast(std::chrono::seconds(60));
    if (rank == 2) {
      const auto text = broadcast(std::chrono::seconds(6));
      _exit(text == "Timed out waiting for rank 1 of the group" ? 0 : 2);
    }
    pause();
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(ranks[1], &status, WUNTRACED), ranks[1]);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_EQ(write(go.write_end.value(), "xx", 2), 2);
  ASSERT_EQ(waitpid(ranks[2], &status, 0), ranks[2]);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  for (const auto rank : {ranks[0], ranks[1]}) {
    kill(rank, SIGKILL);
    waitpid(rank, &status, 0);
  }
}

/// How a rank that is alone on its host is connected to the only other one.
struct Connections {
  UniqueFd from_other, to_other;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

/// The error of a sum of the two.
std::optional<RankFailure> failure_of_sum(Connections connections) {
  UniqueFd file;
  const auto segment = Segment::create(layout_of(2), file);
  Links links{.topology = Topology({{0}, {1}}, 0)};
  links.out.push_back({std::move(connections.to_other), {1}});
  links.in.push_back({std::move(connections.from_other), 1});
  Engine engine(segment, {.rank = 0, .host_names = {"a", "b"}}, std::move(links));
  Bytes numbers(16);
  const ReduceOptions sum{.type = Type::kI32, .input = numbers.data(), .output = numbers.data(), .num_elements = 4};
  const auto pending = start(engine, make_reduction(engine.layout(), 0, sum), Driver::kWaiter, connections.timeout);
  EXPECT_NE(pending.wait(engine), "");
  try {
    std::rethrow_exception(*pending.error);
  } catch (const RankFailure& failure) {
    const auto why = failure.is_silent ? kSilenceOf + 1 : failure.has_ended ? kEndOf + 1 : 0;
    EXPECT_EQ(segment->state(0).has_given_up.load(), why);
    return failure;
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  return std::nullopt;
}

uint16_t port_of(const Listener& listener) {
  return static_cast<uint16_t>(parse_int(split(listener.address(), ' ')[1]).value());
}

std::array<UniqueFd, 2> make_pair() {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

TEST(SharedMirror, AConnectionWithoutAnAnswerIsNotTheEndOfARank) {
  const Firewall firewall;
  auto [unread, to_other] = make_pair();
  const auto silent = failure_of_sum({firewall.silent_connection(std::chrono::milliseconds(300)), std::move(to_other)});
  ASSERT_TRUE(silent);
  EXPECT_TRUE(silent->is_silent);
  EXPECT_FALSE(silent->has_ended) << "nobody takes its place";
  EXPECT_EQ(silent->host, "b");
  EXPECT_STREQ(silent->what(),
               "No answer: the connection to rank 1 of the group on b gives none: the network between the hosts is "
               "cut, or that host is down; the rank may still run");

  auto [other, from_other] = make_pair();
  other.reset();  // as the kernel does when a process ends
  auto [also_unread, also_to_other] = make_pair();
  const auto ended = failure_of_sum({std::move(from_other), std::move(also_to_other)});
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->has_ended);
  EXPECT_STREQ(ended->what(), "Connection closed by peer: rank 1 of the group has ended");
}

// As with a timeout that ends before the kernel gives the connection up.
TEST(SharedMirror, ATimeoutTellsANetworkThatIsCutFromARankThatIsLate) {
  constexpr std::chrono::milliseconds kTimeout(6500);  // longer than what counts as no answer
  const auto failure_over = [&](UniqueFd to_other) {
    return std::async(std::launch::async, [&, to_other = std::move(to_other)]() mutable {
      auto [other, from_other] = make_pair();
      return failure_of_sum({std::move(from_other), std::move(to_other), kTimeout});
    });
  };
  const Firewall firewall;
  Listener listener("127.0.0.1");  // the kernel takes what is sent there
  sockaddr_in where{.sin_family = AF_INET, .sin_port = htons(port_of(listener)), .sin_addr = {}, .sin_zero = {}};
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd to_late(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(to_late.value(), reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);

  auto over_cut = failure_over(firewall.silent_connection(std::chrono::minutes(2)));
  auto over_late = failure_over(std::move(to_late));
  const auto cut = over_cut.get(), late = over_late.get();
  ASSERT_TRUE(cut && late);
  EXPECT_TRUE(cut->is_silent) << cut->what();
  EXPECT_EQ(cut->host, "b");
  EXPECT_STREQ(late->what(), "Timed out waiting for rank 1 of the group");
}

// Rank 1 has found that the connection to rank 2 gives no answer. Rank 0, of its host, waits for rank 1 alone.
TEST(SharedMirror, WhoGivesUpBecauseOfSilencePassesThatOn) {
  UniqueFd file;
  const auto segment = Segment::create(layout_of(3), file);
  segment->state(1).has_given_up = kSilenceOf + 2;
  Engine engine(segment, {.rank = 0});
  Bytes piece(8);
  CopyOptions copy{.kind = 1, .root = 1, .bytes = 8};
  copy.receive = {{}, piece, {}};
  EXPECT_THAT(start(engine, make_copy(engine.layout(), 0, copy), Driver::kWaiter).wait(engine),
              HasSubstr("the connection of rank 1 to rank 2 of the group gives none"));
}

TEST(SharedMirror, WhatMakesNoSenseEndsTheConnection) {
  UniqueFd file;
  const auto segment = Segment::create(layout_of(2), file);
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1} << 60, ~uint64_t{0}}) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    const UniqueFd other(pair[0]);
    segment->state(1).is_cut_off = 0;
    Links links;
    links.in.push_back({UniqueFd(pair[1]), 1});
    std::atomic<int> num_rings = 0;
    Mirror mirror(segment, std::move(links), {.rank = 0, .ring = [&] { ++num_rings; }});
    const uint64_t frame[] = {offset, 64, 0};
    ASSERT_EQ(send(other.value(), frame, sizeof frame, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof frame));
    while (num_rings == 0) std::this_thread::yield();
    EXPECT_TRUE(segment->has_ended(1));
  }
}

// What the network does not take is kept, so that nobody waits who publishes.
TEST(SharedMirror, ASlowReceiverStopsNobody) {
  UniqueFd file, copy;
  const auto segment = Segment::create(layout_of(2), file), there = Segment::create(layout_of(2), copy);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
  Links out, in;
  out.out.push_back({UniqueFd(pair[0]), {1}});
  Mirror mirror(segment, std::move(out), {.rank = 0, .ring = [] {}});
  auto& word = segment->state(0).staged;
  constexpr uint64_t kTimes = 100;
  const auto size = static_cast<size_t>(segment->layout().chunk_bytes);
  for (uint64_t i = 1; i <= kTimes; ++i) {
    std::memset(segment->chunk(0, 0), static_cast<int>(i), size);
    mirror.publish({word, i}, {piece_at(segment->chunk(0, 0), segment->layout().chunk_bytes)});
  }
  in.in.push_back({UniqueFd(pair[1]), 0});
  const Mirror receiver(there, std::move(in), {.rank = 1, .ring = [] {}});
  while (there->state(0).staged.load() != kTimes) std::this_thread::yield();
  EXPECT_EQ(there->chunk(0, 0)[size - 1], static_cast<std::byte>(kTimes));
  EXPECT_EQ(there->chunk(0, 0)[0], static_cast<std::byte>(kTimes));
}

}  // namespace
}  // namespace yoke::dist::shared
