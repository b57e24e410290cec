#include "yoke/profile/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "yoke/profile/made_trace_test.h"

namespace yoke::profile {
namespace {

using testing::ElementsAre;
using WindowUs = std::array<int64_t, 3>;  ///< Number, begin and end, in microseconds.

std::vector<WindowUs> windows_us(const Trace& trace) {
  std::vector<WindowUs> windows;
  const Timeline timeline(trace);
  for (const auto& [number, time] : timeline.windows()) {
    windows.push_back({number, time.begin / 1000, time.end / 1000});
  }
  return windows;
}

TEST(Timeline, StepsAreThoseOfTheTrainingThreadAndDoNotOverlap) {
  MadeTrace trace;
  trace.add_step(7, 0, 100).add_step(10, 200, 100).add_step(8, 90, 110);  // not in the order of time
  trace.add_step(9, 120, 60);                                             // within step 8, so nothing is left of it
  trace.add_step(3, 0, 300, 2);                                           // another thread
  EXPECT_THAT(windows_us(trace), ElementsAre(WindowUs{7, 0, 100}, WindowUs{8, 100, 200}, WindowUs{10, 200, 300}));
  const Timeline timeline(trace);
  EXPECT_TRUE(timeline.has_steps());
  EXPECT_EQ(timeline.window_at(-1), -1);
  EXPECT_EQ(timeline.window_at(99'999), 0);
  EXPECT_EQ(timeline.window_at(100'000), 1);
  EXPECT_EQ(timeline.window_at(300'000), -1) << "the end is not part of the step";
  EXPECT_EQ(timeline.in_steps(), (Intervals{{0, 300'000}}));
}

TEST(Timeline, TheFirstOfSeveralOptimizersEndsSteps) {
  MadeTrace trace;
  trace.add(Kind::kOperation, 10, 20);
  for (const int64_t end : {100, 200, 300}) {
    trace.add(Kind::kOptimizer, end - 20, 20, 1, "Adam").add(Kind::kOptimizer, end + 20, 10, 1, "SGD");
  }
  trace.add(Kind::kOptimizer, 40, 10, 2, "Adam");  // another thread
  EXPECT_THAT(windows_us(trace), ElementsAre(WindowUs{0, 10, 100}, WindowUs{1, 100, 200}, WindowUs{2, 200, 300}));
  EXPECT_FALSE(Timeline(trace).has_steps()) << "the trace itself marks none";
  MadeTrace once;
  once.add(Kind::kOperation, 10, 390).add(Kind::kOptimizer, 80, 20);
  EXPECT_THAT(windows_us(once), ElementsAre(WindowUs{0, 10, 400})) << "one step of the optimizer ends no step";
}

TEST(Timeline, WhatTheDeviceDidBeforeTheTraceIsLeftOut) {
  MadeTrace two;
  two.add_step(0, 0, 100).add_step(1, 100, 100).add(Kind::kKernel, 10, 180, 9);
  EXPECT_THAT(windows_us(two), ElementsAre(WindowUs{0, 0, 100}, WindowUs{1, 100, 200}));
  auto three = two;
  three.add_step(2, 200, 100);
  EXPECT_THAT(windows_us(three), ElementsAre(WindowUs{1, 100, 200}, WindowUs{2, 200, 300}));
  MadeTrace unmarked;
  unmarked.add(Kind::kOperation, 0, 50).add(Kind::kKernel, 20, 60, 9);
  EXPECT_THAT(windows_us(unmarked), ElementsAre(WindowUs{0, 20, 80})) << "it begins with the device's first event";
}

TEST(Timeline, AHostThatIsAheadHasTheDevicesSteps) {
  MadeTrace trace;
  trace.add_step(4, 0, 10).add_step(5, 10, 10);
  auto near = trace;
  near.add(Kind::kKernel, 5, 25, 9);  // ends 10 us after the last step, which is the length of a step
  EXPECT_THAT(windows_us(near), ElementsAre(WindowUs{4, 0, 10}, WindowUs{5, 10, 20}));
  trace.add(Kind::kKernel, 5, 95, 9);  // ends at 100: two steps of 50
  EXPECT_THAT(windows_us(trace), ElementsAre(WindowUs{4, 0, 50}, WindowUs{5, 50, 100}));
}

TEST(Timeline, TheTrainingThreadIsTheOneThatOptimizesOrLoadsOrComputesMost) {
  MadeTrace trace;
  for (const int64_t start : {0, 30}) trace.add(Kind::kOperation, start, 10, 1);
  for (const int64_t start : {0, 20, 40}) trace.add(Kind::kOperation, start, 10, 2);
  EXPECT_EQ(Timeline(trace).main_track(), 2u);
  trace.add(Kind::kLoader, 60, 10, 1);
  EXPECT_EQ(Timeline(trace).main_track(), 1u);
  EXPECT_EQ(Timeline(trace).of(Kind::kLoader), (Intervals{{60'000, 70'000}}));
  trace.add(Kind::kOptimizer, 80, 10, 3);
  EXPECT_EQ(Timeline(trace).main_track(), 3u);
  EXPECT_TRUE(Timeline(trace).of(Kind::kLoader).empty()) << "that is a worker's thread now";
  EXPECT_EQ(Timeline(trace).of({Kind::kOperation, Kind::kOptimizer}),
            (Intervals{{0, 10'000}, {20'000, 50'000}, {80'000, 90'000}}));
}

TEST(Timeline, AnOperationPrecedesThoseThatItCalls) {
  MadeTrace trace;
  trace.add(Kind::kOperation, 5, 1, 2, "other").add(Kind::kOperation, 5, 10, 1, "inner");
  trace.add(Kind::kOperation, 5, 30, 1, "outer").add(Kind::kSync, 0, 1, 1, "sync");
  std::vector<std::string> names;
  for (const auto* event : Timeline(trace).events(Kind::kOperation, Kind::kOperation)) {
    names.push_back(trace.names[event->name].text);
  }
  EXPECT_THAT(names, ElementsAre("outer", "inner", "other"));
}

}  // namespace
}  // namespace yoke::profile
