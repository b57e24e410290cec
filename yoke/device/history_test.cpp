#include "yoke/device/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::device {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr History::Time kStart{};

TEST(History, KeepsTheLatest) {
  History history(3);
  for (int i = 0; i < 5; ++i) history.push(kStart + seconds(i), i);
  EXPECT_THAT(history.samples(),
              ElementsAre(History::Sample{kStart + seconds(2), 2}, History::Sample{kStart + seconds(3), 3},
                          History::Sample{kStart + seconds(4), 4}));
}

TEST(History, AWindowIsMeasuredFromTheNewestSample) {
  History history;
  EXPECT_THAT(history.window(seconds(10)), IsEmpty());
  for (const int i : {0, 1, 5, 9}) history.push(kStart + seconds(i), i);
  EXPECT_THAT(history.window(seconds(4)),
              ElementsAre(History::Sample{kStart + seconds(5), 5}, History::Sample{kStart + seconds(9), 9}));
  EXPECT_EQ(history.window(seconds(100)).size(), 4u);
}

TEST(History, UnknownIsASampleToo) {
  History history;
  history.push(kStart, std::nullopt);
  EXPECT_THAT(history.samples(), ElementsAre(History::Sample{kStart, std::nullopt}));
}

}  // namespace
}  // namespace yoke::device
