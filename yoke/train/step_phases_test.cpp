#include "yoke/train/detail/step_phases.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace yoke::train::detail {
namespace {

int64_t sum_of(const PhaseTimes& times) { return std::accumulate(times.begin(), times.end(), int64_t{0}); }

TEST(PhaseWindows, AreJoinedInPairsSoThatAllStepsHaveAPlace) {
  PhaseWindows windows;
  int64_t num_steps = 0;
  const auto add = [&] { windows.add({{++num_steps, 0, 0, 0, 0, 1}}); };
  for (int i = 0; i < 7; ++i) add();
  EXPECT_TRUE(windows.windows().empty());
  while (num_steps < 63 * 8) add();
  EXPECT_EQ(windows.windows().size(), 63u);
  while (num_steps < 64 * 8) add();
  EXPECT_EQ(windows.windows().size(), 32u);
  EXPECT_EQ(windows.steps_per_window(), 16);
  while (num_steps < 100'000) add();
  int64_t num_in_windows = 0, sum = 0;
  for (const auto& window : windows.windows()) {
    EXPECT_EQ(window.back(), windows.steps_per_window());
    num_in_windows += window.back();
    sum += window.front();
  }
  EXPECT_EQ(sum, num_in_windows * (num_in_windows + 1) / 2) << "the windows are of the first steps";
  EXPECT_GT(num_in_windows, 100'000 - windows.steps_per_window());
  EXPECT_EQ(from_bytes(to_bytes(windows.windows())), windows.windows());
  windows.clear();
  EXPECT_TRUE(windows.windows().empty());
  EXPECT_EQ(windows.steps_per_window(), PhaseWindows::kFirstSteps);
}

TEST(PhaseWindows, BytesOfAnotherSizeAreNone) {
  EXPECT_TRUE(from_bytes("").empty());
  EXPECT_TRUE(from_bytes("1234567").empty());
}

TEST(PhaseClock, DividesAllTimeOfItsThread) {
  PhaseClock clock;
  const auto before = Clock::now();
  clock.start(Phase::kData);
  const auto started = Clock::now();
  while (Clock::now() - started < std::chrono::milliseconds(2)) {
  }
  enter(Phase::kForward);
  std::thread([] { enter(Phase::kWait); }).join();  // another thread has no clock
  enter(Phase::kOther);
  const auto times = clock.take();
  EXPECT_GE(times[0], 2'000'000);
  EXPECT_GT(times[1], 0);
  EXPECT_EQ(times[3], 0);
  const auto all = sum_of(times) + sum_of(clock.take());
  EXPECT_LE(all, std::chrono::nanoseconds(Clock::now() - before).count());
  enter(Phase::kWait);
  clock.stop();
  enter(Phase::kData);
  EXPECT_EQ(clock.take()[0], 0) << "it has stopped";
}

TEST(PhaseClock, NotesWhatTheLoaderNeedsForTheBatchesOfTheLoopAlone) {
  PhaseClock clock;
  clock.start(Phase::kData);
  note_loading(5);
  enter(Phase::kForward);
  note_loading(70);  // of a loader in the loop's body
  EXPECT_EQ(clock.take().loading_ns, 5);
  EXPECT_EQ(clock.take().loading_ns, 0);
  PhaseWindows windows;
  for (int i = 0; i < 8; ++i) windows.add({{}, 3});
  EXPECT_EQ(windows.windows().at(0).loading_ns, 24);
  EXPECT_EQ(from_bytes(to_bytes(windows.windows())), windows.windows());
}

TEST(PhaseClock, AWaitForOthersEndsInThePhaseBefore) {
  { const WaitForOthers without_a_clock; }
  PhaseClock clock;
  clock.start(Phase::kOther);
  clock.take();
  {
    const WaitForOthers waits;
    const auto started = Clock::now();
    while (Clock::now() - started < std::chrono::milliseconds(2)) {
    }
  }
  auto times = clock.take();
  EXPECT_GE(times[static_cast<size_t>(Phase::kWait)], 2'000'000);
  times = clock.take();
  EXPECT_EQ(times[static_cast<size_t>(Phase::kWait)], 0);
  EXPECT_GT(times[static_cast<size_t>(Phase::kOther)], 0);
}

TEST(PhaseClock, OfAnEndedRunIsNotEntered) {
  { PhaseClock().start(Phase::kData); }
  enter(Phase::kForward);
}

}  // namespace
}  // namespace yoke::train::detail
