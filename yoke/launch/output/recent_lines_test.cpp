#include "yoke/launch/output/recent_lines.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> read_all(const RecentLines& lines, RecentLines::Cursor& cursor) {
  std::vector<std::string> result;
  while (const auto line = lines.next(cursor)) {
    result.push_back(fmt::format("{}{}:{}", line->rank, line->stream == LineStream::kErr ? "!" : "", line->text));
    if (line->num_missed > 0) result.back() += fmt::format(" after {}", line->num_missed);
  }
  return result;
}

TEST(RecentLines, AreReadInOrderAndOnce) {
  RecentLines lines;
  RecentLines::Cursor cursor, later;
  EXPECT_THAT(read_all(lines, cursor), IsEmpty());
  lines.add(0, LineStream::kOut, "a");
  lines.add(7, LineStream::kErr, "");
  EXPECT_THAT(read_all(lines, cursor), ElementsAre("0:a", "7!:"));
  lines.add(RecentLines::kLauncher, LineStream::kErr, std::string_view("b\0\xff", 3));
  EXPECT_THAT(read_all(lines, cursor), ElementsAre(std::string("-1!:b\0\xff", 7)));
  EXPECT_THAT(read_all(lines, cursor), IsEmpty());
  EXPECT_THAT(read_all(lines, later).size(), 3) << "each reader has its own place";
}

TEST(RecentLines, TheOldestMakeRoom) {
  RecentLines lines(256);
  RecentLines::Cursor slow;
  lines.add(0, LineStream::kOut, "first");
  EXPECT_THAT(read_all(lines, slow), ElementsAre("0:first"));
  for (int i = 0; i < 100; ++i) lines.add(1, LineStream::kOut, fmt::format("line {}", i));
  RecentLines::Cursor late;
  const auto kept = read_all(lines, late);
  ASSERT_GE(kept.size(), 5);
  EXPECT_EQ(kept.back(), "1:line 99");
  EXPECT_EQ(kept.front(), fmt::format("1:line {}", 100 - kept.size())) << "nothing is missing in between";
  const auto seen = read_all(lines, slow);
  EXPECT_EQ(seen.front(), fmt::format("1:line {} after {}", 100 - kept.size(), 100 - kept.size()));
  EXPECT_EQ(seen.size(), kept.size());
}

TEST(RecentLines, AReaderMayBeginWithTheLastOnes) {
  RecentLines lines(256);
  const auto last = [&](uint64_t count, std::optional<int64_t> rank = {}) {
    auto cursor = lines.last(count, rank).begin;
    return read_all(lines, cursor);
  };
  EXPECT_THAT(last(3), IsEmpty());
  for (int i = 0; i < 100; ++i) lines.add(i % 2, LineStream::kOut, fmt::format("line {}", i));
  EXPECT_THAT(last(2), ElementsAre("0:line 98", "1:line 99"));
  EXPECT_THAT(last(0), IsEmpty());
  EXPECT_THAT(last(2, 0), ElementsAre("0:line 96", "1:line 97", "0:line 98", "1:line 99"));
  EXPECT_THAT(last(2, 7), IsEmpty());
  RecentLines::Cursor all;
  EXPECT_EQ(last(1000), read_all(lines, all));
  auto later = lines.last(0).begin;
  lines.add(5, LineStream::kErr, "more");
  EXPECT_THAT(read_all(lines, later), ElementsAre("5!:more"));
}

// Oracle: a list of all lines. Lines have all lengths, and the end of the ring is at every possible place in a line.
TEST(RecentLines, HoldWhatFits) {
  RecentLines lines(1024);
  RecentLines::Cursor keen;
  std::vector<std::string> all;
  for (size_t i = 0; i < 3000; ++i) {
    all.push_back(std::string(i * 7 % 131, static_cast<char>('a' + i % 26)));
    lines.add(0, LineStream::kOut, all.back());
    const auto line = lines.next(keen);
    ASSERT_TRUE(line);
    EXPECT_EQ(line->text, all.back());
    RecentLines::Cursor cursor;
    std::vector<std::string> kept;
    while (auto old = lines.next(cursor)) kept.push_back(std::move(old->text));
    ASSERT_TRUE(std::equal(kept.rbegin(), kept.rend(), all.rbegin())) << i;
    ASSERT_GE(kept.size(), std::min<size_t>(i + 1, 6)) << i;
  }
}

TEST(RecentLines, OfALongLineTheBeginningIsKept) {
  RecentLines lines(512);
  RecentLines::Cursor cursor;
  lines.add(0, LineStream::kOut, std::string(1000, 'x'));
  lines.add(0, LineStream::kOut, "next");
  EXPECT_EQ(lines.next(cursor)->text, std::string(512 / 2 - 16, 'x'));
  EXPECT_EQ(lines.next(cursor)->text, "next");
  RecentLines big;
  big.add(0, LineStream::kOut, std::string(1 << 20, 'x'));
  RecentLines::Cursor other;
  EXPECT_EQ(big.next(other)->text.size(), RecentLines::kMaxLineBytes);
}

}  // namespace
}  // namespace yoke::launch
