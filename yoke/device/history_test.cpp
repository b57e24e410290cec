#include "yoke/device/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::device {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

constexpr History::Time kStart{};

TEST(History, KeepsTheLatest) {
  History history(3);
  for (int i = 0; i < 5; ++i) history.push(kStart + seconds(i), i);
  EXPECT_THAT(history.samples(),
              ElementsAre(History::Sample{kStart + seconds(2), 2}, History::Sample{kStart + seconds(3), 3},
                          History::Sample{kStart + seconds(4), 4}));
}

TEST(History, UnknownIsASampleToo) {
  History history;
  history.push(kStart, std::nullopt);
  EXPECT_THAT(history.samples(), ElementsAre(History::Sample{kStart, std::nullopt}));
}

}  // namespace
}  // namespace yoke::device
