#include "yoke/dist/shared/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "yoke/dist/shared/run_engines_test.h"

namespace yoke::dist::shared {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;
using Bytes = std::vector<std::byte>;

/// A message has other bytes for each mark.
Bytes bytes_with_mark(size_t size, int64_t mark) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = std::byte(static_cast<uint8_t>(i * 7 + static_cast<size_t>(mark) * 31));
  return bytes;
}

Message sent_to(int64_t peer, Bytes& bytes, uint32_t tag = 0) {
  return {.is_sent = true, .peer = peer, .tag = tag, .data = bytes.data(), .bytes = std::ssize(bytes)};
}
Message received_from(int64_t peer, Bytes& bytes, uint32_t tag = 0) {
  return {.peer = peer, .tag = tag, .data = bytes.data(), .bytes = std::ssize(bytes)};
}

TEST(SharedMessages, AnySizeGoesFromAllToAll) {
  for (const int64_t num_ranks : {2, 3}) {
    run_engines(tiny(num_ranks), [&](Engine& engine, int64_t rank) {
      for (const size_t size : {0, 1, 63, 64, 65, 191, 192, 193, 255, 256, 257, 1000, 10'001}) {
        std::vector<Bytes> sent(static_cast<size_t>(num_ranks)), received(sent.size());
        std::vector<Pending> pending;
        for (int64_t peer = 0; peer < num_ranks; ++peer) {
          if (peer == rank) continue;
          auto& to = sent[static_cast<size_t>(peer)] = bytes_with_mark(size, 10 * rank + peer);
          auto& from = received[static_cast<size_t>(peer)] = Bytes(size);
          pending.push_back(start(engine, received_from(peer, from)));
          pending.push_back(start(engine, sent_to(peer, to)));
        }
        for (const auto& one : pending) EXPECT_EQ(one.wait(engine), "");
        for (int64_t peer = 0; peer < num_ranks; ++peer) {
          if (peer == rank) continue;
          ASSERT_EQ(received[static_cast<size_t>(peer)], bytes_with_mark(size, 10 * peer + rank)) << size;
        }
      }
    });
  }
}

TEST(SharedMessages, AreInOrderForEachTagWhateverIsReceivedFirst) {
  for (const size_t size : {8, 700}) {
    run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
      std::vector<Bytes> messages;
      std::vector<Pending> pending;
      const std::vector<uint32_t> tags = {5, 3, 5, 7, 3, 5};
      for (size_t i = 0; i < tags.size(); ++i) {
        messages.push_back(bytes_with_mark(size, rank == 0 ? static_cast<int64_t>(i) : 0));
      }
      if (rank == 0) {
        for (size_t i = 0; i < tags.size(); ++i) pending.push_back(start(engine, sent_to(1, messages[i], tags[i])));
        for (const auto& one : pending) EXPECT_EQ(one.wait(engine), "");
      } else {
        for (const size_t i : {3, 1, 0, 2, 4, 5}) {
          EXPECT_EQ(start(engine, received_from(0, messages[i], tags[i])).wait(engine), "");
          ASSERT_EQ(messages[i], bytes_with_mark(size, static_cast<int64_t>(i)));
        }
      }
    });
  }
}

TEST(SharedMessages, OneFromAnyRankSaysFromWhich) {
  run_engines(tiny(3), [&](Engine& engine, int64_t rank) {
    Bytes own = bytes_with_mark(300, rank);
    if (rank > 0) {
      EXPECT_EQ(start(engine, sent_to(0, own, 4)).wait(engine), "");
      return;
    }
    std::vector<int64_t> from;
    for (int i = 0; i < 2; ++i) {
      const auto pending = start(engine, received_from(kAnyRank, own, 4));
      EXPECT_EQ(pending.wait(engine), "");
      from.push_back(pending.transfer->message->peer);
      EXPECT_EQ(own, bytes_with_mark(300, from.back()));
    }
    EXPECT_THAT(from, testing::UnorderedElementsAre(1, 2));
  });
}

// Rank 0 waits for rank 1 elsewhere, and rank 1 for the message.
TEST(SharedMessages, AreMovedThoughNobodyWaitsForThem) {
  std::barrier<> both(2);
  run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
    for (const int64_t who_waits : {0, 1}) {
      Bytes bytes = bytes_with_mark(2000, rank == 0 ? 1 : 0);
      const auto pending = start(engine, rank == 0 ? sent_to(1, bytes) : received_from(0, bytes));
      if (rank == who_waits) {
        EXPECT_EQ(pending.wait(engine), "");
      }
      both.arrive_and_wait();
      EXPECT_EQ(pending.wait(engine), "");
      EXPECT_EQ(bytes, bytes_with_mark(2000, 1));
    }
  });
}

// Rank 0's thread waits for free slots, which rank 1 frees when it has the message.
TEST(SharedMessages, AreMovedWhileTheThreadWaitsForSlots) {
  std::barrier<> both(2);
  run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
    Bytes message = bytes_with_mark(2000, rank == 0 ? 1 : 0);
    std::vector<Bytes> pieces(10, Bytes(8));
    std::vector<Pending> pending;
    const auto start_copies = [&] {
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
    };
    if (rank == 0) {
      start_copies();
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(pending[i].wait(engine), "") << "the thread has nothing else to do then";
    }
    pending.push_back(start(engine, rank == 0 ? sent_to(1, message) : received_from(0, message)));
    if (rank == 1) {
      EXPECT_EQ(pending[0].wait(engine), "");
    }
    both.arrive_and_wait();
    if (rank == 1) start_copies();
    for (const auto& one : pending) EXPECT_EQ(one.wait(engine), "");
    EXPECT_EQ(message, bytes_with_mark(2000, 1));
  });
}

TEST(SharedMessages, AndCollectivesOverlap) {
  run_engines(tiny(3), [&](Engine& engine, int64_t rank) {
    std::minstd_rand random(static_cast<unsigned>(rank) + 1), sizes(7);
    for (int round = 0; round < 20; ++round) {
      std::vector<Bytes> sent, received;
      std::vector<std::vector<int32_t>> numbers;
      std::vector<Pending> pending;
      std::vector<size_t> size_of_message;
      for (int i = 0; i < 12; ++i) size_of_message.push_back(sizes() % 4 == 0 ? sizes() % 900 : sizes() % 100);
      for (int i = 0; i < 12; ++i) {
        const auto size = size_of_message[static_cast<size_t>(i)];
        const auto tag = static_cast<uint32_t>(i % 2);
        numbers.emplace_back(size, i);
        sent.push_back(bytes_with_mark(size, rank + i));
        received.emplace_back(size);
        auto* const memory = reinterpret_cast<std::byte*>(numbers.back().data());
        pending.push_back(start(
            engine,
            make_reduction(
                engine.layout(), rank,
                {.type = Type::kI32, .input = memory, .output = memory, .num_elements = std::ssize(numbers.back())})));
        pending.push_back(start(engine, sent_to((rank + 1) % 3, sent.back(), tag)));
        pending.push_back(start(engine, received_from((rank + 2) % 3, received.back(), tag)));
        if (random() % 5 == 0) engine.poll(pending[random() % pending.size()].transfer);
      }
      std::shuffle(pending.begin(), pending.end(), random);
      for (const auto& one : pending) EXPECT_EQ(one.wait(engine), "");
      for (int i = 0; i < 12; ++i) {
        const auto size = size_of_message[static_cast<size_t>(i)];
        ASSERT_EQ(received[static_cast<size_t>(i)], bytes_with_mark(size, (rank + 2) % 3 + i));
        ASSERT_EQ(numbers[static_cast<size_t>(i)], std::vector<int32_t>(size, 3 * i));
      }
    }
  });
}

TEST(SharedMessages, AMissingRankIsATimeoutThatNamesIt) {
  for (const bool is_sent : {true, false}) {
    run_engines(tiny(3), [&](Engine& engine, int64_t rank) {
      if (rank != 1) return;
      Bytes bytes(1000);
      const auto message = is_sent ? sent_to(2, bytes) : received_from(2, bytes);
      EXPECT_EQ(start(engine, message, milliseconds(30)).wait(engine), "Timed out waiting for rank 2 of the group");
      EXPECT_THAT(start(engine, message).wait(engine), StartsWith("Timed out"));
    });
  }
}

TEST(SharedMessages, AWaitThatEndsBeforeTheMessagesTimeIsNoFailure) {
  run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
    Bytes bytes(8);
    if (rank != 1) return;
    const auto pending = start(engine, received_from(0, bytes), std::chrono::minutes(10));
    EXPECT_FALSE(engine.wait(pending.transfer, Clock::now()));
    EXPECT_FALSE(engine.poll(pending.transfer));
    engine.stop();
    EXPECT_THAT(pending.wait(engine), HasSubstr("have been closed"));
  });
}

TEST(SharedMessages, WhatALostRankHasSentArrivesAndTheRestNamesIt) {
  UniqueFd file;
  const auto segment = Segment::create(tiny(3), file);
  Bytes first = bytes_with_mark(100, 1), second(100);
  {
    Engine gone(segment, {.rank = 1});
    EXPECT_EQ(start(gone, sent_to(0, first)).wait(gone), "") << "it fits in the channel, so nobody has to receive it";
  }
  Engine engine(segment, {.rank = 0}), other(segment, {.rank = 2});
  EXPECT_EQ(start(engine, received_from(kAnyRank, second)).wait(engine), "");
  EXPECT_EQ(second, first);
  const auto from_any = start(engine, received_from(kAnyRank, second, 1));
  EXPECT_FALSE(engine.poll(from_any.transfer)) << "rank 2 can still send it";
  EXPECT_EQ(start(other, sent_to(0, first, 1)).wait(other), "");
  EXPECT_EQ(from_any.wait(engine), "");
  EXPECT_THAT(start(engine, received_from(1, second)).wait(engine), HasSubstr("rank 1 of the group has ended"));
}

TEST(SharedMessages, OtherSizesAndTypesAreErrors) {
  for (const bool has_other_type : {true, false}) {
    for (const bool is_kept : {true, false}) {
      std::barrier<> both(2);
      run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
        Bytes bytes(has_other_type || rank == 0 ? 8 : 9), later(8);
        if (rank == 0) {
          auto message = sent_to(1, bytes);
          message.type = has_other_type ? 1 : 0;
          EXPECT_EQ(start(engine, message).wait(engine), "");
          EXPECT_EQ(start(engine, sent_to(1, later, 2)).wait(engine), "");
        } else {
          if (is_kept) {
            EXPECT_EQ(start(engine, received_from(0, later, 2)).wait(engine), "");
          }
          const auto wanted = has_other_type ? "one of another dtype" : "one of 8 bytes, and this rank receives 9:";
          EXPECT_THAT(start(engine, received_from(0, bytes)).wait(engine),
                      HasSubstr(std::string("a message from rank 0 of the group is ") + wanted));
        }
        both.arrive_and_wait();
      });
    }
  }
}

TEST(SharedMessages, StopEndsWhatIsInFlight) {
  run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
    if (rank == 1) return;
    Bytes sent(1000), received(1000);
    const auto first = start(engine, sent_to(1, sent)), second = start(engine, received_from(1, received));
    engine.stop();
    EXPECT_THAT(first.wait(engine), HasSubstr("have been closed"));
    EXPECT_THAT(second.wait(engine), HasSubstr("have been closed"));
    EXPECT_THAT(start(engine, sent_to(1, sent)).wait(engine), HasSubstr("have been closed"));
  });
}

TEST(SharedMessages, AreCounted) {
  run_engines(tiny(2), [&](Engine& engine, int64_t rank) {
    Bytes bytes(3);
    EXPECT_EQ(start(engine, rank == 0 ? sent_to(1, bytes) : received_from(0, bytes)).wait(engine), "");
    EXPECT_EQ(engine.num_started(), 1u);
  });
}

}  // namespace
}  // namespace yoke::dist::shared
