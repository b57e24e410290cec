#include "yoke/keep/waiting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace yoke::keep {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(QueueNews, AreToldWhenSomethingHasChanged) {
  struct Row {
    const char* what;
    seconds time;
    int64_t position;
    std::optional<seconds> wait;
    const char* holders;
    const char* told;  ///< nullptr: nothing.
  };
  const Row rows[] = {
      {"no place yet", seconds(0), 0, {}, "ada", nullptr},
      {"the first time", seconds(0), 2, {}, "ada", "position 2 in the queue; claimed by ada"},
      {"the same", seconds(60), 2, {}, "ada", nullptr},
      {"another holder, and nothing was told lately",
       seconds(60),
       2,
       {},
       "bob",
       "position 2 in the queue; claimed by bob"},
      {"claims are short", seconds(65), 2, {}, "eve", nullptr},
      {"the next place is told at once", seconds(66), 1, {}, "eve", "position 1 in the queue; claimed by eve"},
      {"an end is known now", seconds(80), 1, minutes(10), "eve",
       "position 1 in the queue, expected in 10:00; claimed by eve"},
      {"the same end", seconds(140), 1, minutes(9), "eve", nullptr},
      {"an end was put off", seconds(200), 1, minutes(30), "eve",
       "position 1 in the queue, expected in 30:00; claimed by eve"},
      {"nobody has them", seconds(260), 1, seconds(0), "", "position 1 in the queue, next"},
  };
  QueueNews news;
  const Clock::time_point begin(std::chrono::hours(1));
  for (const auto& row : rows) {
    claim::Outlook outlook;
    outlook.turn.position = row.position;
    outlook.turn.expected_wait = row.wait;
    outlook.holders = row.holders;
    const auto told = news.next(outlook, begin + row.time);
    EXPECT_EQ(told.value_or("(nothing)"), row.told == nullptr ? "(nothing)" : row.told) << row.what;
  }
  claim::Outlook limited{.turn = {.position = 3}, .holders = "eve"};
  limited.turn.excess = claim::Excess{.most = 2};
  EXPECT_EQ(news.next(limited, begin + minutes(10)), "position 3 in the queue; held back by a limit");
}

TEST(StaleAttempts, GetMoreTimeAndEndWithAnError) {
  StaleAttempts attempts;
  const claim::LockWait usual;
  EXPECT_EQ(attempts.after({}, false).term, usual.term);
  const claim::Allocation stale{.is_stale = true}, passed_by{.is_stale = true, .has_passed_by = true};
  EXPECT_EQ(attempts.after(stale, false).term, usual.term);
  EXPECT_EQ(attempts.after(stale, false).term, 2 * usual.term);
  const auto third = attempts.after(passed_by, false);
  EXPECT_EQ(third.patience, milliseconds(0)) << "it has waited for the lock already";
  EXPECT_EQ(third.term, 3 * usual.term);
  EXPECT_EQ(attempts.after({}, false).patience, usual.patience) << "this one decided";
  for (int i = 0; i < 19; ++i) attempts.after(stale, false);
  EXPECT_EQ(attempts.after(stale, true).term, 10 * usual.term) << "who waits goes on";
  EXPECT_THAT(test::message_of([&] { attempts.after(stale, false); }, ErrorCode::kUnavailable),
              testing::StartsWith("21 times, looking at the claims took too long"));
}

}  // namespace
}  // namespace yoke::keep
