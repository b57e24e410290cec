#include "yoke/launch/output/write_trouble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace yoke::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr WriteTrouble::Time kNow{std::chrono::seconds(100)};
constexpr const char* kBegin =
    "cannot write standard output: No space left on device; the job goes on, up to 1 MiB is kept meanwhile, and "
    "writing "
    "is tried again";

TEST(WriteTrouble, AnEpisodeIsToldOnce) {
  WriteTrouble trouble("standard output");
  trouble.on_all_written();
  EXPECT_FALSE(trouble.is_on());
  EXPECT_THAT(trouble.take_news(), IsEmpty());
  for (int i = 0; i < 3; ++i) trouble.on_failure(ENOSPC, kNow);
  EXPECT_THAT(trouble.take_news(), ElementsAre(kBegin));
  EXPECT_THAT(trouble.take_news(), IsEmpty());
  trouble.on_all_written();
  EXPECT_THAT(trouble.take_news(), ElementsAre("standard output can be written again; nothing is missing"));
  EXPECT_FALSE(trouble.has_lost());
  trouble.on_failure(ENOSPC, kNow);
  EXPECT_THAT(trouble.take_news(), ElementsAre(kBegin)) << "the next one too";
}

TEST(WriteTrouble, TriesAgainAfterAPause) {
  WriteTrouble trouble("standard output");
  EXPECT_TRUE(trouble.may_try(kNow));
  EXPECT_EQ(trouble.next_try(), std::nullopt);
  trouble.on_failure(ENOSPC, kNow);
  EXPECT_FALSE(trouble.may_try(kNow));
  const auto next = kNow + WriteTrouble::kRetryEvery;
  EXPECT_EQ(trouble.next_try(), next);
  EXPECT_TRUE(trouble.may_try(next));
  trouble.on_not_ready(next);
  EXPECT_EQ(trouble.next_try(), next + WriteTrouble::kRetryEvery) << "or its owner would try without end";
  trouble.on_all_written();
  EXPECT_EQ(trouble.next_try(), std::nullopt);
  trouble.on_not_ready(next);
  EXPECT_FALSE(trouble.is_on()) << "a slow reader is no failure";
}

TEST(WriteTrouble, WhatIsLostIsCountedInLines) {
  WriteTrouble trouble("the log /l");
  trouble.on_failure(ENOSPC, kNow);
  trouble.on_lost("a\nb\n");
  trouble.on_all_written();
  EXPECT_THAT(trouble.take_news(), testing::Contains("the log /l can be written again; 2 lines are missing"));
  trouble.on_given_up();
  EXPECT_THAT(trouble.take_news(), ElementsAre("2 lines are missing from the log /l: No space left on device"));
  trouble.on_given_up();
  EXPECT_THAT(trouble.take_news(), IsEmpty()) << "once is enough";
}

TEST(WriteTrouble, APartOfALineIsALine) {
  WriteTrouble trouble("the log /l");
  trouble.on_failure(EFBIG, kNow);
  EXPECT_THAT(trouble.take_news(), testing::SizeIs(1));
  trouble.on_lost("");
  EXPECT_FALSE(trouble.has_lost());
  trouble.on_lost("begi");
  EXPECT_TRUE(trouble.has_lost());
  trouble.on_lost("nning\nand");
  trouble.on_given_up();
  EXPECT_FALSE(trouble.is_on());
  EXPECT_THAT(trouble.take_news(), ElementsAre("2 lines are missing from the log /l: File too large"));
}

TEST(WriteTrouble, OneLineIsMissing) {
  WriteTrouble trouble("standard error");
  trouble.on_failure(EIO, kNow);
  trouble.take_news();
  trouble.on_lost("x\n");
  trouble.on_given_up();
  EXPECT_THAT(trouble.take_news(), ElementsAre("1 line is missing from standard error: Input/output error"));
}

}  // namespace
}  // namespace yoke::launch
