#include "yoke/launch/node/heartbeat.h"

#include <gtest/gtest.h>

#include <vector>

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;

constexpr Heartbeat::Time kFirstHeard{std::chrono::seconds(1000)};

TEST(Heartbeat, TheOtherSideIsLostAfterSoMuchSilence) {
  struct Case {
    int silence_ms, heard_ms, now_ms;
    bool is_lost;
  };
  constexpr Case kCases[] = {{2000, 0, 0, false},          {2000, 0, 1999, false},      {2000, 0, 2000, true},
                             {2000, 0, 60'000, true},      {2000, 500, 2499, false},    {2000, 500, 2500, true},
                             {15'000, 500, 15'499, false}, {15'000, 500, 15'500, true}, {2000, 1999, 3998, false}};
  for (const auto& one : kCases) {
    Heartbeat heartbeat(kFirstHeard, milliseconds(one.silence_ms));
    heartbeat.on_heard(kFirstHeard + milliseconds(one.heard_ms));
    EXPECT_EQ(heartbeat.is_lost(kFirstHeard + milliseconds(one.now_ms)), one.is_lost)
        << one.heard_ms << " " << one.now_ms;
  }
}

TEST(Heartbeat, TimeInWhichThisSideDidNotRunIsNotSilence) {
  struct Case {
    int silence_ms;
    std::vector<int> turns_ms;
    bool is_lost;  ///< At the last turn.
  };
  const Case kCases[] = {{4000, {1000, 2000, 3000, 4000}, true},
                         {4000, {1000, 8000}, false},
                         {4000, {1000, 8000, 8900}, false},
                         {4000, {1000, 8000, 9000}, true},
                         {20'000, {19'000}, false},
                         {20'000, {5000, 10'000, 15'000, 20'000}, true},
                         {20'000, {100'000, 200'000, 300'000}, false},
                         {20'000, {100'000, 200'000, 300'000, 400'000}, true}};
  for (const auto& one : kCases) {
    Heartbeat heartbeat(kFirstHeard, milliseconds(one.silence_ms));
    bool is_lost = false;
    for (const int turn : one.turns_ms) {
      heartbeat.on_turn(kFirstHeard + milliseconds(turn));
      is_lost = heartbeat.is_lost(kFirstHeard + milliseconds(turn));
    }
    EXPECT_EQ(is_lost, one.is_lost) << testing::PrintToString(one.turns_ms);
  }
}

TEST(Heartbeat, SomethingIsSaidEverySecond) {
  Heartbeat heartbeat(kFirstHeard, milliseconds(15'000));
  EXPECT_FALSE(heartbeat.has_to_say(kFirstHeard + milliseconds(999)));
  EXPECT_TRUE(heartbeat.has_to_say(kFirstHeard + milliseconds(1000)));
  heartbeat.on_said(kFirstHeard + milliseconds(700));
  EXPECT_FALSE(heartbeat.has_to_say(kFirstHeard + milliseconds(1699)));
  EXPECT_TRUE(heartbeat.has_to_say(kFirstHeard + milliseconds(1700)));
}

TEST(Heartbeat, TheNextTimeIsTheEarlier) {
  Heartbeat heartbeat(kFirstHeard, milliseconds(2000));
  EXPECT_EQ(heartbeat.next_time(true), kFirstHeard + milliseconds(1000));
  EXPECT_EQ(heartbeat.next_time(false), kFirstHeard + milliseconds(2000)) << "what is unsent says that we are there";
  heartbeat.on_said(kFirstHeard + milliseconds(1900));
  EXPECT_EQ(heartbeat.next_time(true), kFirstHeard + milliseconds(2000));
  heartbeat.set_silence(milliseconds(500));
  EXPECT_TRUE(heartbeat.is_lost(kFirstHeard + milliseconds(500)));
}

}  // namespace
}  // namespace yoke::launch
