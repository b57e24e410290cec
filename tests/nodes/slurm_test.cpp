// Tests `srun yoke run`, where nodes find each other by Slurm's variables. Two nodes of a real Slurm run on this host.
// Their names do not resolve here, so the test sets MASTER_ADDR.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"
#include "tests/support/kept_state.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result srun(const std::vector<std::string>& words, const char* num_nodes = "2") {
  std::vector<std::string> argv = {YOKE_SLURM_CLUSTER, num_nodes, "srun", "--overcommit"};
  argv.insert(argv.end(), words.begin(), words.end());
  return run({.argv = argv, .environment = {{"MASTER_ADDR", "127.0.0.1"}}, .without = {"RANK", "WORLD_SIZE"}});
}

TEST(SrunNodes, MeetByThemselves) {
  const auto result = srun({"-N2", "-n2", YOKE_COMMAND, "run", "-n", "2", "--", "sh", "-c",
                            "echo $RANK/$WORLD_SIZE $GROUP_RANK $MASTER_ADDR $TORCHELASTIC_RUN_ID"});
  if (result.exit_code == 125) GTEST_SKIP() << result.err;
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] 0/4 0 127.0.0.1 1.0\n"), HasSubstr("[1] 1/4 0 127.0.0.1 1.0\n"),
                                HasSubstr("[2] 2/4 1 127.0.0.1 1.0\n"), HasSubstr("[3] 3/4 1 127.0.0.1 1.0\n")));
}

/// With the options of the step that a batch script starts.
TEST(SrunNodes, ASpareTakesThePlaceOfALostOne) {
  const TemporaryFolder folder;
  // What a rank prints just before its launcher is killed may get lost, so it is written into a file, too.
  const auto result =
      srun({"-N3", "-n3", "--wait=0", "--no-kill", "--kill-on-bad-exit=0", YOKE_COMMAND, "run", "--spares", "1",
            "--max-restarts", "1", "--", "sh", "-c",
            "echo $RANK/$WORLD_SIZE of attempt $TORCHELASTIC_RESTART_COUNT is in task $SLURM_PROCID | tee -a " +
                folder.path("ranks") +
                "; [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; [ $RANK = 1 ] || exec sleep 1000; "
                "kill -KILL $(ps -o ppid= -p $PPID)"},
           "3");
  if (result.exit_code == 125) GTEST_SKIP() << result.err;
  EXPECT_EQ(result.exit_code, 137) << "that of the launcher that was killed" << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("0/2 of attempt 1 is in task 0"), HasSubstr("1/2 of attempt 1 is in task 2")));
  EXPECT_THAT(slurp(folder.path("ranks")), HasSubstr("1/2 of attempt 0 is in task 1"));
}

/// Rank 1 has its launcher killed when the head knows that it keeps a state, which a node tells once a second.
TEST(SrunNodes, ASpareStartsTheRanksOfALostOneWhileTheOthersRun) {
  const TemporaryFolder folder;
  const auto result =
      srun({"-N3", "-n3", "--wait=0", "--no-kill", "--kill-on-bad-exit=0", YOKE_COMMAND, "run", "--spares", "1",
            "--replace", "1", "--", "sh", "-c",
            kKeepsState +
                "made 4; echo $RANK.$YOKE_REPLACEMENT is in task $SLURM_PROCID; case $RANK.$YOKE_REPLACEMENT in "
                // A node looks once a second which ranks keep a state.
                "1.0) sleep 3; kill -KILL $(ps -o ppid= -p $PPID); exec sleep 1000 ;; 1.1) : > " +
                folder.path("there") + " ;; esac; until [ -e " + folder.path("there") + " ]; do sleep 0.05; done"},
           "3");
  if (result.exit_code == 125) GTEST_SKIP() << result.err;
  EXPECT_EQ(result.exit_code, 137) << "that of the launcher that was killed" << result.err;
  EXPECT_EQ(result.out.find("0.0 is in task 0"), result.out.rfind("0.")) << "rank 0 has kept its process";
  EXPECT_THAT(result.out, AllOf(HasSubstr("1.0 is in task 1"), HasSubstr("1.1 is in task 2")));
  EXPECT_THAT(result.err, HasSubstr(" takes its place, and starts rank 1 again, replacement 1 of 1"));
}

TEST(SrunNodes, TwoOfThemOnOneNodeAreRefused) {
  const auto result = srun({"-N1", "-n2", YOKE_COMMAND, "run", "--", "true"});
  if (result.exit_code == 125) GTEST_SKIP() << result.err;
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_THAT(result.err, HasSubstr("yoke run was started 2 times on this node"));
}

}  // namespace
}  // namespace yoke::test
