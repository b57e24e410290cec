// What a Run says about its steps and its memory. Its ranks are processes here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace yoke::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

std::string output_of(const std::string& name, const std::string& folder) {
  const auto result = run({.argv = {YOKE_COMMAND, "run", "-n", "2", "--", YOKE_WATCHED, folder, name}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

TEST(WatchedProgram, NamesTheRankWhoseMemoryGrowsBeforeTheEpochEndsAndRunsCanBeCompared) {
  const TemporaryFolder folder;
  const auto text = output_of("leak", folder.path("leak"));
  // malloc, and the lists of what is kept, need a little more than 160 KiB.
  EXPECT_THAT(text, ContainsRegex("memory of rank 1 grows by 1[5-8][0-9][.]. KiB a step since step [0-9]+, and is "
                                  "[0-9.]+ MiB now; a cache that fills in the first epoch does so as well"));
  EXPECT_THAT(text, Not(HasSubstr("memory of rank 0")));
  EXPECT_LT(text.find("grows"), text.find("    1 ")) << text;

  output_of("late", folder.path("late"));
  const auto compared = run({.argv = {YOKE_COMMAND, "profile", "--compare", folder.path("leak"),
                                      folder.path("late/profile.json"), "--json"}});
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  const auto json = nlohmann::json::parse(compared.out);
  EXPECT_EQ(json["cause"]["phase"], "forward") << compared.out;
  EXPECT_EQ(json["cause"]["rank"], 1) << compared.out;
  EXPECT_GT(json["step"]["difference_ms"], 3) << compared.out;
  EXPECT_EQ(nlohmann::json::parse(slurp(folder.path("late/profile.json")))["bottleneck"], "skew");
}

// Which rank's batch comes last by a hair is chance, and stays so; the loader of the other one is as slow.
TEST(WatchedProgram, DoesNotAccuseARankIfTheLoadersOfAllAreSlow) {
  const TemporaryFolder folder;
  const auto text = output_of("data", folder.path("run"));
  EXPECT_THAT(text, ContainsRegex("[(][3-9][0-9] %[)] pass while ranks wait for their data"));
  EXPECT_THAT(text, Not(HasSubstr("is late")));
  EXPECT_EQ(nlohmann::json::parse(slurp(folder.path("run/profile.json")))["bottleneck"], "data_loading");
}

TEST(WatchedProgram, NamesTheRankThatIsSlowInAnEvaluationWithinTheEpoch) {
  const TemporaryFolder folder;
  EXPECT_THAT(output_of("evaluation", folder.path("run")),
              ContainsRegex("rank 1 is late by [0-9.]+ ms of each step of [^\n]* after the optimizer's step, as in an "
                            "evaluation"));
}

TEST(WatchedProgram, SaysNothingLaterOfWhatGrowsAtFirstOrOnce) {
  const TemporaryFolder folder;
  // While a cache fills, nobody can know that this will end: it may be said in the first epoch alone.
  EXPECT_THAT(output_of("cache", folder.path("run")), Not(ContainsRegex("grows by [^;\n]*\n")));
}

// All ranks end with the same error, and any of them may be the first one.
TEST(WatchedProgram, TheLastLineNamesTheRankThatDiffers) {
  const TemporaryFolder folder;
  const auto error_of = [&](const std::string& name) {
    const auto result = run({.argv = {YOKE_COMMAND, "run", "-n", "3", "--", YOKE_WATCHED, folder.path(name), name}});
    EXPECT_NE(result.exit_code, 0);
    return result.err;
  };
  EXPECT_THAT(error_of("rate"), ContainsRegex("yoke run: rank 1 .pid [0-9]+. differs from the others after step 20; "
                                              "then .* exited with code 69; stopped the 2 other ranks\n$"));
  EXPECT_THAT(error_of("log"),
              ContainsRegex("yoke run: rank 1 .pid [0-9]+. differs from the others in the figures that "
                            "are logged; then .* exited with code 64; stopped the 2 other ranks\n$"));
}

TEST(WatchedProgram, ThoseWhoWaitForARankSayWhatItsExceptionSaid) {
  const TemporaryFolder folder;
  const auto result = run({.argv = {YOKE_COMMAND, "run", "-n", "3", "--", YOKE_WATCHED, folder.path(), "throw"}});
  EXPECT_EQ(result.exit_code, 70);
  for (const auto* rank : {"0", "2"}) {
    EXPECT_THAT(result.err, ContainsRegex("watched_program: rank " + std::string(rank) +
                                          ": collective [0-9]+ lost its connection to another rank: [^\n]*"
                                          "; reported before: rank 1: an exception has ended it: no more rice\n"));
  }
}

}  // namespace
}  // namespace yoke::test
