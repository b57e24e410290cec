#include "yoke/launch/loop/event_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "yoke/base/file.h"

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class Source : public EventSource {
 public:
  Source(std::function<void(WaitSet&)> wishes, std::function<void(LoopTime)> work)
      : wishes_(std::move(wishes)), work_(std::move(work)) {}
  void add_to(WaitSet& waits) override { wishes_(waits); }
  void handle(LoopTime now) override { work_(now); }

 private:
  std::function<void(WaitSet&)> wishes_;
  std::function<void(LoopTime)> work_;
};

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    out = UniqueFd(ends[0]);
    in = UniqueFd(ends[1]);
  }
  void write() const { EXPECT_EQ(::write(in.value(), "x", 1), 1); }
  UniqueFd out, in;
};

TEST(WaitSet, EachFlagIsOfItsOwnDescriptor) {
  Pipe first, second;
  WaitSet waits;
  for (const bool is_first : {true, false}) {
    bool none = true, one = false, two = true, room = false;
    (is_first ? first : second).write();
    waits.clear();
    waits.read(-1, none);
    waits.read(first.out.value(), one);
    waits.read(second.out.value(), two);
    waits.write(second.in.value(), room);
    waits.wait({}, seconds(10));
    EXPECT_FALSE(none) << "a negative descriptor is never ready, although the flag was set";
    EXPECT_TRUE(one);
    EXPECT_EQ(two, !is_first);
    EXPECT_TRUE(room);
  }
}

TEST(WaitSet, AClosedDescriptorIsReady) {
  Pipe pipe;
  pipe.in.reset();
  bool is_ready = false;
  WaitSet waits;
  waits.read(pipe.out.value(), is_ready);
  waits.wait({}, seconds(10));
  EXPECT_TRUE(is_ready);
}

TEST(WaitSet, WaitsUntilTheEarliestTimeAndNoLongerThanTheLimit) {
  const LoopTime now{seconds(1000)};
  struct Case {
    std::vector<std::optional<milliseconds>> from_now;
    milliseconds limit, at_least;
  };
  const Case kCases[] = {{{}, milliseconds(30), milliseconds(30)},
                         {{std::nullopt}, milliseconds(30), milliseconds(30)},
                         {{milliseconds(20), minutes(5)}, minutes(5), milliseconds(20)},
                         {{minutes(5), milliseconds(20)}, minutes(5), milliseconds(20)},
                         {{minutes(-5)}, minutes(5), milliseconds(0)},
                         {{minutes(5)}, milliseconds(10), milliseconds(10)}};
  for (const auto& one : kCases) {
    WaitSet waits;
    for (const auto& time : one.from_now) waits.until(time ? std::optional(now + *time) : std::nullopt);
    const auto began = std::chrono::steady_clock::now();
    waits.wait(now, one.limit);
    const auto took = std::chrono::steady_clock::now() - began;
    EXPECT_GE(took, one.at_least);
    EXPECT_LT(took, seconds(60)) << "or it waited for the wrong time";  // clock: a tenth of it is a busy machine's
  }
}

TEST(EventLoop, ATurnHandlesEverySourceInOrderAndAtOneTime) {
  Pipe pipe;
  EventLoop loop;
  bool is_ready = false;
  std::vector<std::pair<int, LoopTime>> handled;
  Source reader([&](WaitSet& waits) { waits.read(pipe.out.value(), is_ready); },
                [&](LoopTime now) { handled.emplace_back(1, now); });
  Source timer([&](WaitSet& waits) { waits.until(loop.now()); }, [&](LoopTime now) { handled.emplace_back(2, now); });
  const std::array<EventSource*, 2> sources = {&reader, &timer};
  loop.turn(sources, seconds(60));
  EXPECT_FALSE(is_ready) << "the time came first";
  pipe.write();
  loop.turn(sources, seconds(60));
  EXPECT_TRUE(is_ready);
  ASSERT_EQ(handled.size(), 4U);
  for (size_t i = 0; i < 4; i += 2) {
    EXPECT_EQ(handled[i].first, 1);
    EXPECT_EQ(handled[i + 1].first, 2);
    EXPECT_EQ(handled[i].second, handled[i + 1].second);
  }
  EXPECT_EQ(loop.now(), handled.back().second);
  EXPECT_GE(handled[2].second, handled[0].second);
}

/// A source with a slow reader does not ask for input. It then gets none, and the loop does not spin.
TEST(EventLoop, ASourceThatAsksForNothingIsNotWoken) {
  Pipe pipe;
  pipe.write();
  EventLoop loop;
  bool is_ready = false, has_room = false;
  Source reader([&](WaitSet& waits) { waits.read(has_room ? pipe.out.value() : -1, is_ready); }, [](LoopTime) {});
  const std::array<EventSource*, 1> sources = {&reader};
  loop.turn(sources, milliseconds(0));
  EXPECT_FALSE(is_ready);
  has_room = true;
  loop.turn(sources, milliseconds(0));
  EXPECT_TRUE(is_ready);
}

}  // namespace
}  // namespace yoke::launch
