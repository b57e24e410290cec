// Tests the launcher's half of `yoke run --replace`, with ranks that are shells. tests/replace has trainings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/run/launch.h"
#include "tests/support/kept_state.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Kills the first process of rank 1.
const std::string kKilled =
    kKeepsState + R"(if [ $RANK = 1 ] && [ $YOKE_REPLACEMENT = 0 ]; then made 5; kill -KILL $$; fi; )";

Result run_replacing(const TemporaryFolder& folder, std::vector<std::string> options, const std::string& script) {
  std::filesystem::create_directories(folder.path("tmp"));
  options.insert(options.end(), {"--", "sh", "-c", script});
  auto command = yoke_run(std::move(options));
  command.environment = {{"TMPDIR", folder.path("tmp")}, {"F", folder.path()}};
  auto result = run(command);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("tmp"))) << "something was left in TMPDIR";
  return result;
}

TEST(ReplaceRank, TheKilledRankStartsAgainAloneInItsPlace) {
  const TemporaryFolder folder;
  const auto result =
      run_replacing(folder, {"-n", "3", "--replace", "2"},
                    "echo $$ >> $F/pids-$RANK; echo from $RANK.$YOKE_REPLACEMENT; env | sort > "
                    "$F/env-$RANK-$YOKE_REPLACEMENT; [ $YOKE_REPLACEMENT = 0 ] || cp $YOKE_RANK_STATE.1 $F/kept;" +
                        kKilled + "[ $RANK != 1 ] || touch $F/there; until [ -e $F/there ]; do sleep 0.05; done");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("was killed by SIGKILL; starting it again, replacement 1 of 2"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("[1] from 1.0"), HasSubstr("[1] from 1.1"), HasSubstr("[2] from 2.0")));
  const auto num_lines = [&](const char* file) { return std::ranges::count(slurp(folder.path(file)), '\n'); };
  EXPECT_EQ(num_lines("pids-0"), 1);
  EXPECT_EQ(num_lines("pids-1"), 2);
  EXPECT_EQ(num_lines("pids-2"), 1);
  auto before = slurp(folder.path("env-1-0")), after = slurp(folder.path("env-1-1"));
  const auto number = before.find("YOKE_REPLACEMENT=0");
  ASSERT_NE(number, before.npos);
  before.replace(number, 18, "YOKE_REPLACEMENT=1");
  EXPECT_EQ(before, after) << "all else is the same";
  EXPECT_EQ(slurp(folder.path("kept"))[0], 6) << "what the rank has left is there";
}

TEST(ReplaceRank, ItsLogGoesOn) {
  const TemporaryFolder folder;
  const auto result =
      run_replacing(folder, {"-n", "2", "--replace", "2", "--tee", "3", "--log-dir", folder.path("logs")},
                    "echo from $RANK.$YOKE_REPLACEMENT; " + kKilled +
                        "[ $RANK != 1 ] || touch $F/there; until [ -e $F/there ]; do sleep 0.05; done");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path("logs"))) {
    EXPECT_EQ(entry.path().string().find(".state"), std::string::npos) << "logs stay, and states do not";
    if (!entry.path().string().ends_with("/1/stdout.log")) continue;
    EXPECT_EQ(slurp(entry.path()), "from 1.0\nfrom 1.1\n");
  }
}

TEST(ReplaceRank, WhatTheKilledRankLeftIsEnded) {
  const TemporaryFolder folder;
  const auto result = run_replacing(
      folder, {"-n", "2", "--replace", "2"},
      "if [ $RANK = 1 ] && [ $YOKE_REPLACEMENT = 0 ]; then sleep 1000 & echo $! > $F/child; fi; " + kKilled +
          "if [ $RANK = 1 ]; then while kill -0 $(cat $F/child); do sleep 0.05; done; touch $F/there; fi;"
          "until [ -e $F/there ]; do sleep 0.05; done");
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(ReplaceRank, AllEndWhenNoReplacementIsLeft) {
  const TemporaryFolder folder;
  const auto result = run_replacing(folder, {"-n", "2", "--replace", "2", "--max-restarts", "1"},
                                    kKeepsState +
                                        "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; made 4; "
                                        "[ $RANK != 1 ] || kill -KILL $$; exec sleep 1000");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("replacement 2 of 2"),
                    HasSubstr("was killed by SIGKILL, and is not replaced, because 2 replacements were made "
                              "already; stopped the other rank; starting all ranks again, restart 1 of 1")));
}

TEST(ReplaceRank, TheSameFaultAtTheSameStepEndsTheJob) {
  const TemporaryFolder folder;
  const auto result = run_replacing(folder, {"-n", "2", "--replace", "9"},
                                    kKeepsState + "made 4; [ $RANK != 1 ] || kill -SEGV $$; exec sleep 1000");
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV);
  EXPECT_THAT(result.err, AllOf(HasSubstr("replacement 1 of 9"), Not(HasSubstr("replacement 2 of 9")),
                                HasSubstr("because it ended in the same way after step 4 before")));
}

TEST(ReplaceRank, ARankThatFailsOrHasKeptNoStateIsNotReplaced) {
  const TemporaryFolder folder;
  const auto failed = run_replacing(folder, {"-n", "2", "--replace", "9"},
                                    kKeepsState + "made 4; [ $RANK != 1 ] || exit 3; exec sleep 1000");
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_THAT(failed.err, AllOf(HasSubstr("exited with code 3; stopped the other rank"), Not(HasSubstr("replace"))));

  const auto early =
      run_replacing(folder, {"-n", "2", "--replace", "9"}, "[ $RANK != 1 ] || kill -KILL $$; exec sleep 1000");
  EXPECT_EQ(early.exit_code, 128 + SIGKILL);
  EXPECT_THAT(early.err, HasSubstr("because it kept no state of a training then"));
}

TEST(ReplaceRank, ARankThatLeavesItsTrainingWithStatusZeroEndsAll) {
  const TemporaryFolder folder;
  const auto left = run_replacing(folder, {"-n", "3", "--replace", "9"},
                                  kKeepsState + "made 4; [ $RANK != 1 ] || { trap - EXIT; exit 0; }; exec sleep 1000");
  EXPECT_EQ(left.exit_code, 75);
  EXPECT_THAT(left.err, AllOf(HasSubstr("yoke run: rank 1 (pid "),
                              HasSubstr(") had ended with status 0 too early, after step 4 of its training, and is not "
                                        "replaced; stopped the 2 other ranks")));
}

TEST(ReplaceRank, SaysWhyItHasNoEffect) {
  const TemporaryFolder folder;
  EXPECT_THAT(run_replacing(folder, {"-n", "1", "--replace", "2"}, "[ -z $YOKE_REPLACEMENT ]").err,
              HasSubstr("--replace has no effect, because the job has one rank"));
  folder.write("script.py", "print('here')");
  const auto python = run(yoke_run({"-n", "2", "--replace", "2", "--", folder.path("script.py")}));
  EXPECT_EQ(python.exit_code, 0) << python.err;
  EXPECT_THAT(python.err, HasSubstr("--replace has no effect, because the program is in Python"));
  EXPECT_THAT(run(yoke_run({"-n", "2", "--replace", "2", "--", "python3", folder.path("script.py")})).err,
              HasSubstr("--replace has no effect, because the program is in Python"));
  auto command = yoke_run({"-n", "2", "--replace", "2", "--", "true"});
  command.environment = {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}};
  EXPECT_THAT(run(command).err, HasSubstr("because rank 0 serves the ranks' store"));
}

}  // namespace
}  // namespace yoke::test
