// The patterns of memory accesses on which engine.cpp and messages.cpp rely, alone, as often as a test can: on the
// words that ranks share, without locks or sleeps that would order anything by the way. Processors and compilers that
// reorder what they may not reorder fail here. docs/dist.md says why the orders suffice on Arm.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "yoke/dist/shared/segment.h"

namespace yoke::dist::shared {
namespace {

constexpr uint64_t kTurns = 20'000;
constexpr auto kSeqCst = std::memory_order_seq_cst, kRelaxed = std::memory_order_relaxed;

/// Runs both at once, on the memory of two ranks.
void run_both(const std::function<void(Segment&)>& first, const std::function<void(Segment&)>& second) {
  UniqueFd file;
  const auto segment = Segment::create(layout_of(2), file);
  std::thread thread([&] { second(*segment); });
  first(*segment);
  thread.join();
}

void wait_until(const std::function<bool()>& is_true) {
  while (!is_true()) std::this_thread::yield();
}

/// Message passing, and its way back: rank 0 fills a chunk and publishes `staged`; rank 1 reads the chunk and publishes
/// `taken`; only then is the chunk filled again. Returns how many wrong bytes rank 1 has seen.
uint64_t pass_chunks(std::memory_order store, std::memory_order load) {
  uint64_t num_wrong = 0;
  run_both(
      [&](Segment& segment) {
        auto* const words = reinterpret_cast<uint64_t*>(segment.chunk(0, 0));
        for (uint64_t turn = 1; turn <= kTurns; ++turn) {
          for (int i = 0; i < 16; ++i) words[i] = turn;
          segment.state(0).staged.store(turn, store);
          wait_until([&] { return segment.state(1).taken.load(load) == turn; });
        }
      },
      [&](Segment& segment) {
        const auto* const words = reinterpret_cast<const uint64_t*>(segment.chunk(0, 0));
        for (uint64_t turn = 1; turn <= kTurns; ++turn) {
          wait_until([&] { return segment.state(0).staged.load(load) == turn; });
          for (int i = 15; i >= 0; --i) num_wrong += words[i] != turn;
          segment.state(1).taken.store(turn, store);
        }
      });
  return num_wrong;
}

TEST(SharedLitmus, WhoSeesANumberSeesTheData) { EXPECT_EQ(pass_chunks(kSeqCst, kSeqCst), 0u); }

// The same with what says in a slot that its header and data are there, and in a channel that is a ring.
TEST(SharedLitmus, SlotsAndChannelsPassTheirContents) {
  uint64_t num_wrong = 0;
  run_both(
      [&](Segment& segment) {
        const auto num_slots = static_cast<uint64_t>(segment.layout().num_slots);
        auto& channel = segment.channel(0, 1);
        auto* const ring = reinterpret_cast<uint64_t*>(channel.data());
        for (uint64_t turn = 1; turn <= kTurns; ++turn) {
          wait_until([&] { return turn <= num_slots || segment.state(1).consumed.load(kSeqCst) >= turn - num_slots; });
          auto& slot = segment.slot(0, turn);
          slot.header.bytes = static_cast<int64_t>(turn);
          *reinterpret_cast<uint64_t*>(slot.data()) = turn;
          slot.sequence.store(turn, kSeqCst);
          wait_until([&] { return turn - channel.read.load(kSeqCst) <= 4; });
          ring[turn % 4] = turn;
          channel.written.store(turn, kSeqCst);
        }
      },
      [&](Segment& segment) {
        auto& channel = segment.channel(0, 1);
        const auto* const ring = reinterpret_cast<const uint64_t*>(channel.data());
        for (uint64_t turn = 1; turn <= kTurns; ++turn) {
          auto& slot = segment.slot(0, turn);
          wait_until([&] { return slot.sequence.load(kSeqCst) == turn; });
          num_wrong += *reinterpret_cast<const uint64_t*>(slot.data()) != turn;
          num_wrong += slot.header.bytes != static_cast<int64_t>(turn);
          segment.state(1).consumed.store(turn, kSeqCst);
          wait_until([&] { return channel.written.load(kSeqCst) >= turn; });
          num_wrong += ring[turn % 4] != turn;
          channel.read.store(turn, kSeqCst);
        }
      });
  EXPECT_EQ(num_wrong, 0u);
}

/// Store buffering: rank 0 publishes and looks for sleepers, while rank 1 counts itself as one and looks a last time.
/// Returns how often neither saw the other: then rank 1 would sleep with nobody to wake it.
uint64_t count_missed(std::memory_order order) {
  std::vector<uint8_t> saw_sleeper(kTurns + 1), saw_number(kTurns + 1);
  const auto meet = [](std::atomic<uint64_t>& own, const std::atomic<uint64_t>& other, uint64_t turn) {
    own.store(turn, kSeqCst);  // so that both begin a turn at the same time
    for (int looks = 0; other.load(kSeqCst) < turn; ++looks) {
      if (looks > 1000) std::this_thread::yield();  // the other one may have no processor
    }
  };
  run_both(
      [&](Segment& segment) {
        auto& ring = segment.state(0);
        for (uint64_t turn = 1; turn <= kTurns; ++turn) {
          meet(ring.reduced, segment.state(1).reduced, turn);
          ring.staged.store(turn, order);
          saw_sleeper[turn] = segment.state(1).num_sleepers.load(order) >= turn;
        }
      },
      [&](Segment& segment) {
        auto& sleeper = segment.state(1);
        for (uint64_t turn = 1; turn <= kTurns; ++turn) {
          meet(sleeper.reduced, segment.state(0).reduced, turn);
          sleeper.num_sleepers.fetch_add(1, order);
          saw_number[turn] = segment.state(0).staged.load(order) >= turn;
        }
      });
  uint64_t num_missed = 0;
  for (uint64_t turn = 1; turn <= kTurns; ++turn) num_missed += saw_sleeper[turn] == 0 && saw_number[turn] == 0;
  return num_missed;
}

TEST(SharedLitmus, ASleeperIsSeenOrSeesTheNumber) { EXPECT_EQ(count_missed(kSeqCst), 0u); }

#ifdef __SANITIZE_THREAD__
// That TSan finds the broken form shows that it would find such an order in engine.cpp or messages.cpp.
TEST(SharedLitmusDeathTest, RelaxedOrdersAreARace) {
  EXPECT_EXIT(
      {
        pass_chunks(kRelaxed, kRelaxed);
        exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}
#endif

}  // namespace
}  // namespace yoke::dist::shared
