#include "yoke/storage/in_children.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/message_of.h"

namespace yoke::storage {
namespace {

using yoke::test::message_of;

TEST(InChildren, WorkReturnsItsTextOrItsError) {
  const std::string large(1 << 20, 'x');
  const auto outcomes = in_children({[] { return std::string(); }, [&] { return large; },
                                     []() -> std::string { throw Error(ErrorCode::kNotFound, "no such thing"); },
                                     [] {
                                       _exit(3);
                                       return std::string();
                                     }},
                                    Deadline(Seconds(60)));
  EXPECT_EQ(outcomes[0]->value(), "");
  EXPECT_EQ(outcomes[1]->value(), large);
  EXPECT_EQ(message_of([&] { outcomes[2]->value(); }, ErrorCode::kNotFound), "no such thing");
  EXPECT_THAT(message_of([&] { outcomes[3]->value(); }, ErrorCode::kInternal), testing::HasSubstr("killed"));
}

TEST(InChildren, WhoeverStopsWaitingLeavesNoProcess) {
  const auto hang = [] {
    for (;;) pause();
    return std::string();
  };
  const auto give_up = [] { throw Error(ErrorCode::kUnavailable, "interrupted"); };
  EXPECT_EQ(
      message_of([&] { in_child(hang, Deadline(Seconds(60)), "looking at /d", give_up); }, ErrorCode::kUnavailable),
      "interrupted");
  while (waitpid(-1, nullptr, 0) > 0) continue;  // ends because the child was killed
  EXPECT_EQ(errno, ECHILD);
}

TEST(InChildren, WhatDoesNotEndInTimeIsLeft) {
  const Deadline deadline(Seconds(2));  // ten times what the other child needs on a busy machine
  const auto hang = [] {
    for (;;) pause();
    return std::string();
  };
  const auto outcomes = in_children({hang, [] { return std::string("done"); }}, deadline);
  EXPECT_FALSE(outcomes[0]);
  EXPECT_EQ(outcomes[1]->value(), "done");
  EXPECT_EQ(deadline.left().count(), 0);
  EXPECT_EQ(message_of([&] { in_child(hang, Deadline(Seconds(0.1)), "looking at /d"); }, ErrorCode::kTimeout),
            "looking at /d got no answer in 0.1 s");
}

TEST(InChildren, AChildHasNoneOfOurDescriptors) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto end = ends[1];
  EXPECT_EQ(
      in_child([end] { return std::string(write(end, "x", 1) == 1 ? "open" : "closed"); }, Deadline(Seconds(60)), "it"),
      "closed");
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace yoke::storage
