// What a Run says about the memory of its ranks, which are processes here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace yoke::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

std::string output_of(const std::string& name) {
  const TemporaryFolder folder;
  const auto result = run({.argv = {YOKE_COMMAND, "run", "-n", "2", "--", YOKE_WATCHED, folder.path("run"), name}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

TEST(WatchedMemory, TheRankWhoseMemoryGrowsIsNamedBeforeTheEpochEnds) {
  const auto text = output_of("leak");
  // malloc, and the lists of what is kept, need a little more than that.
  EXPECT_THAT(text, ContainsRegex("memory of rank 1 grows by 1[5-8][0-9][.]. KiB a step since step [0-9]+, and is "
                                  "[0-9.]+ MiB now; a cache that fills in the first epoch does so as well"));
  EXPECT_THAT(text, Not(HasSubstr("rank 0 grows")));
  EXPECT_LT(text.find("grows"), text.find("    1 ")) << text;
}

TEST(WatchedMemory, WhatGrowsAtFirstOrOnceIsNotNamedLater) {
  // While a cache fills, nobody can know that this will end: it may be said in the first epoch alone.
  const auto text = output_of("cache");
  EXPECT_THAT(text, Not(ContainsRegex("grows by [^;\n]*\n")));
}

}  // namespace
}  // namespace yoke::test
