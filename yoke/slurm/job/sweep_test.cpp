#include "yoke/slurm/job/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SlurmSweep, HasAllCombinations) {
  const auto tasks = plan_sweep({parse_parameter("lr=0.1,0.01"), parse_parameter("batch=32,64")},
                                {"./train", "--lr={lr}", "{batch}x"});
  ASSERT_EQ(tasks.size(), 4U);
  EXPECT_THAT(tasks[0].argv, ElementsAre("./train", "--lr=0.1", "32x"));
  EXPECT_THAT(tasks[1].argv, ElementsAre("./train", "--lr=0.1", "64x"));
  EXPECT_THAT(tasks[3].argv, ElementsAre("./train", "--lr=0.01", "64x"));
  for (const auto* job : {"", "12"}) {
    const Sweep sweep{
        .tasks = tasks, .job = job, .cluster = job, .folder = "/w/s", .options = {"-t", "5"}, .at_once = 2};
    EXPECT_EQ(parse_sweep(to_text(sweep), "a"), sweep);
  }
}

TEST(SlurmSweep, HasATaskForEachLineOfAFile) {
  const auto rows = parse_parameter_file(
      "\xef\xbb\xbflr, layers,note\r\n"
      "0.1,\"4,8\", say \"hi\" \r\n"
      "\n"
      "0.01 , \"16\" ,\"a\nb \"\"c\"\"\"\n"
      ".1,\"\",x",
      "p.csv");
  EXPECT_THAT(rows, ElementsAre(SweepValues{{"lr", "0.1"}, {"layers", "4,8"}, {"note", "say \"hi\""}},
                                SweepValues{{"lr", "0.01"}, {"layers", "16"}, {"note", "a\nb \"c\""}},
                                SweepValues{{"lr", ".1"}, {"layers", ""}, {"note", "x"}}));
  const auto tasks = plan_sweep({parse_parameter("seed=1,2")}, {"./train", "{layers}", "-s{seed}"}, rows);
  ASSERT_EQ(tasks.size(), 6U);
  EXPECT_THAT(tasks[1].argv, ElementsAre("./train", "4,8", "-s2"));
  EXPECT_EQ(tasks[1].parameters.size(), 4U) << "the table has columns that the program does not take";
  EXPECT_THAT(tasks[4].argv, ElementsAre("./train", "", "-s1"));
  EXPECT_THROW(plan_sweep({}, {"./train", "{seed}"}, rows), Error) << "no column is used";
  EXPECT_THROW(plan_sweep({parse_parameter("lr=1")}, {"{lr}"}, rows), Error) << "lr is in the file too";

  const std::pair<const char*, const char*> refused[] = {
      {"a,b\n\"x\ny\",1\n2\n", "p.csv, line 4, has 1 values for 2 names"},
      {"a\n\"x\n", "line 2, has a quote without an end"},
      {"a\n\"x\"y\n", "line 2, has text after the end of a quote"},
      {"a,b\n1,\n", "line 2, has no value for b"},
      {"a,a\n1,2\n", "'a' is no name, or is there twice"},
      {"0 1\n1", "'0 1' is no name"},
      {"a\n\n", "p.csv has no line with values"},
      {"", "p.csv has no line with values"},
  };
  for (const auto& [text, why] : refused) {
    EXPECT_THAT(
        test::message_of([&, &text = text] { parse_parameter_file(text, "p.csv"); }, ErrorCode::kInvalidArgument),
        testing::HasSubstr(why));
  }
}

TEST(SlurmSweep, PassesWhatTheTableShows) {
  const auto tasks =
      plan_sweep({parse_parameter("v={w}"), parse_parameter("w=1")}, {"{v}", "{w}", "{{v}}", "{x}", "{"});
  EXPECT_THAT(tasks[0].argv, ElementsAre("{w}", "1", "{{w}}", "{x}", "{"));
  EXPECT_EQ(tasks[0].parameters, (SweepValues{{"v", "{w}"}, {"w", "1"}}));
}

TEST(SlurmSweep, KnowsTheLastJobOfEachTask) {
  const Sweep sweep{.tasks = plan_sweep({parse_parameter("a=1,2,3")}, {"{a}"}),
                    .job = "12",
                    .options = {"-t5"},
                    .reruns = {{"15", {1, 2}, {"-t5", "--mem=2G"}}, {"17", {2}, {"-t9"}}}};
  EXPECT_EQ(parse_sweep(to_text(sweep), "a"), sweep);
  EXPECT_THAT(jobs_of_task(sweep, 0), ElementsAre("12"));
  EXPECT_THAT(jobs_of_task(sweep, 2), ElementsAre("12", "15", "17"));
  EXPECT_THAT(options_of_task(sweep, 0), ElementsAre("-t5"));
  EXPECT_THAT(options_of_task(sweep, 1), ElementsAre("-t5", "--mem=2G"));
}

TEST(SlurmSweep, IsWrittenWithBytesThatAreNotUtf8) {
  const auto tasks = plan_sweep({parse_parameter("a=\xe4")}, {"./train", "{a}"});
  EXPECT_EQ(parse_sweep(to_text(Sweep{.tasks = tasks}), "a").tasks[0].argv[1], "\xef\xbf\xbd");
}

TEST(SlurmSweep, RefusesMistakes) {
  for (const auto* text : {"lr", "=1", "lr=", "lr=1,,2", "l r=1", "$(x)=1"})
    EXPECT_THROW(parse_parameter(text), Error) << text;
  EXPECT_THROW(plan_sweep({parse_parameter("lr=1")}, {"./train"}), Error);
  EXPECT_THAT(unknown_placeholders({parse_parameter("lr=1")}, {"./train", "{lr}", "--a={batch}", "b{batch}"}),
              ElementsAre("batch"));
  EXPECT_THAT(unknown_placeholders({parse_parameter("lr=1")}, {"sh", "-c", "echo ${HOME} {1..3} {a b} {"}), IsEmpty());
  EXPECT_THROW(plan_sweep({parse_parameter("a=1"), parse_parameter("a=2")}, {"{a}"}), Error);
  EXPECT_THAT(test::message_of([] { parse_sweep("{}", "f/sweep.json"); }, ErrorCode::kDataLoss),
              testing::AllOf(testing::HasSubstr("f/sweep.json is damaged"), testing::HasSubstr("sweep.sh beside it")));
}

TEST(SlurmSweep, WarnsOfTasksThatNothingUses) {
  using Words = std::vector<std::string>;
  EXPECT_THAT(unused_tasks_warning({"-N2", "-n", "4"}, {"python3", "train.py"}),
              testing::AllOf(testing::HasSubstr("several nodes (--nodes=2 --ntasks=4)"),
                             testing::HasSubstr("-- yoke run python3 ...")));
  for (const auto& options : {Words{"--ntasks=2"}, {"--ntasks-per-node", "4"}, {"--tasks-per-node=4"}, {"-N2-4"}}) {
    EXPECT_THAT(unused_tasks_warning(options, {"./train"}), testing::HasSubstr("runs the program once")) << options[0];
    for (const auto& argv : {Words{"srun", "./train"}, {"/opt/bin/yoke", "run", "./train"}, {"mpirun", "./train"}}) {
      EXPECT_EQ(unused_tasks_warning(options, argv), "") << options[0] << argv[0];
    }
  }
  for (const auto& options : {Words{}, {"-N1", "-n1"}, {"-c8", "-t", "5"}, {"--gpus-per-node=4"}}) {
    EXPECT_EQ(unused_tasks_warning(options, {"./train"}), "");
  }
  EXPECT_EQ(unused_tasks_warning({"-n4"}, {"torchrun", "train.py"}), "");
  EXPECT_EQ(unused_tasks_warning({"-n4"}, {"python3", "-m", "torch.distributed.run", "train.py"}), "");
  EXPECT_NE(unused_tasks_warning({"-N2"}, {"torchrun", "train.py"}), "") << "it starts the ranks of one node";
  EXPECT_NE(unused_tasks_warning({"-n4"}, {"yoke", "bench"}), "");
}

// Oracle: the shell itself runs the script.
TEST(SlurmSweep, HasAScriptThatPassesEachWordUnchanged) {
  test::TemporaryFolder folder;
  folder.write("1/x", "");
  const std::vector<SweepTask> tasks = {{{}, {"false"}},
                                        {{}, {"printf", "<%s>", "it's", "$HOME `id` \"", "a b\n", ""}}};
  folder.write("script", sweep_script(tasks, folder.path(), "s"));
  const auto result = test::run({.argv = {"bash", folder.path("script")},
                                 .environment = {{"SLURM_ARRAY_TASK_ID", "1"}, {"SLURM_ARRAY_JOB_ID", "12"}}});
  EXPECT_EQ(result.out, "<it's><$HOME `id` \"><a b\n><>");
  EXPECT_EQ(test::slurp(folder.path("1/status")), "0 12 0\n");
}

}  // namespace
}  // namespace yoke::slurm
