#include "yoke/slurm/job/array_submission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/fake_slurm.h"
#include "tests/support/message_of.h"
#include "yoke/slurm/job/sweep_folder.h"

namespace yoke::slurm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SlurmArraySubmission : public testing::Test {
 protected:
  PlannedArray plan(std::vector<std::string> options = {}, std::optional<int64_t> at_once = {}) const {
    auto tasks = plan_tasks({.parameters = {"a=1,2"}, .parameter_file = "", .argv = {"echo", "{a}"}}).tasks;
    return plan_array(std::move(tasks), {.folder = "sweep", .options = std::move(options), .at_once = at_once},
                      {"echo", "{a}"}, slurm_.environment());
  }
  /// A sweep of two tasks that have failed. The second one has other options since its last run.
  void write_failed_sweep() const {
    auto sweep = plan().sweep;
    sweep.job = "7";
    sweep.reruns = {{"8", {1}, {"-t", "5"}}};
    slurm_.write("sweep/sweep.json", to_text(sweep));
    slurm_.write("sweep/sweep.sh", "#!/bin/sh\n");
    slurm_.write("sweep/0/status", "3 7 0\n");
    slurm_.write("sweep/1/status", "4 8 0\n");
    for (const auto* task : {"0", "1"}) slurm_.write(std::string("sweep/") + task + "/slurm.out", "printed\n");
  }

  test::FakeSlurm slurm_;
  test::Heard heard_;
};

TEST_F(SlurmArraySubmission, MakesFoldersAndNotesTheJob) {
  slurm_.make_scontrol({""});
  slurm_.make("sbatch", "cat >" + slurm_.path("got") + "; echo 'sbatch: billed to x' >&2; echo 12");
  slurm_.write("file", "");
  const auto tasks = plan_tasks({.parameters = {"a=1,2"}, .parameter_file = "", .argv = {"file", "./file", "{a}{b}"}});
  EXPECT_THAT(tasks.unknown_placeholders, ElementsAre("b"));
  EXPECT_THAT(tasks.tasks[1].argv, ElementsAre("file", slurm_.path("./file"), "2{b}")) << "tasks run elsewhere";
  auto array = plan({"-t 5", "'-C=a b'"}, 1);
  check_array(array, slurm_.environment());
  submit_array(array, slurm_.environment(), heard_.tell());
  const auto folder = slurm_.path("sweep");
  EXPECT_THAT(slurm_.calls("sbatch"), ElementsAre("--parsable --array=0-1%1 --chdir=" + folder + " --output=" + folder +
                                                  "/%a/slurm.out -t 5 -C=a b"));
  EXPECT_EQ(sbatch_line(array.options),
            "sbatch --array=0-1%1 --chdir=" + folder + " --output=" + folder + "/%a/slurm.out -t 5 '-C=a b' <sweep.sh");
  EXPECT_EQ(test::slurp(slurm_.path("got")), array.script);
  EXPECT_EQ(test::slurp(folder + "/sweep.sh"), array.script);
  EXPECT_TRUE(std::filesystem::is_directory(folder + "/1"));
  EXPECT_THAT(heard_.slurm, ElementsAre("sbatch: billed to x\n"));
  const auto kept = open_sweep("sweep", slurm_.environment());
  EXPECT_EQ(kept.sweep, array.sweep);
  EXPECT_EQ(kept.sweep.job, "12");
  EXPECT_EQ(kept.sweep.cluster, "yoke");
  EXPECT_THAT(test::message_of([&] { check_array(plan(), slurm_.environment()); }, ErrorCode::kFailedPrecondition),
              HasSubstr("has another sweep"));
}

TEST_F(SlurmArraySubmission, LeavesNothingOfASweepThatSlurmRefuses) {
  slurm_.make_failing("sbatch", "sbatch: error: Batch job submission failed: Invalid qos specification");
  auto array = plan();
  EXPECT_THAT(test::message_of([&] { submit_array(array, slurm_.environment(), heard_.tell()); },
                               ErrorCode::kFailedPrecondition),
              HasSubstr("Invalid qos"));
  EXPECT_FALSE(std::filesystem::exists("sweep"));
  // Without a number it may run, and then it needs its folders.
  slurm_.make("sbatch", "exit 0");
  EXPECT_EQ(test::error_of([&] { submit_array(array, slurm_.environment(), heard_.tell()); }).code(),
            ErrorCode::kDataLoss);
  EXPECT_TRUE(std::filesystem::exists("sweep/sweep.json"));
}

TEST_F(SlurmArraySubmission, RefusesWhatSlurmWouldRefuseOrCouldNotWrite) {
  slurm_.make("sbatch", "echo slurm 22.05.8");
  const std::pair<const char*, const char*> refused[] = {
      {"--array=1-3", "the sweep sets this option itself"},
      {"--wrap=x", "the sweep sets this option itself"},
      {"-t 2h", "sbatch does not know this form; write -t 2:00:00"},
      {"-N 2 4", "4: this is no option"},
      {"'-t 5", "a quote is not closed"},
      {"-C a#b #c", "a # begins a comment"},
      {"-e nowhere/%a.err", "give %a/%a.err"},
  };
  for (const auto& [options, why] : refused) {
    EXPECT_THAT(test::message_of([&, one = options] { plan({one}); }), HasSubstr(why)) << options;
  }
  for (const auto* options : {"-e %a/err", "-e err", "-e /dev/null", "-t 2:00:00"}) EXPECT_NO_THROW(plan({options}));
  slurm_.make("sbatch", "echo slurm 23.02.0");
  EXPECT_NO_THROW(plan({"-e nowhere/%a.err"})) << "this Slurm makes the folder";

  slurm_.make_scontrol({""});
  auto array = plan();
  array.sweep.tasks.resize(2003);
  EXPECT_THAT(test::message_of([&] { check_array(array, slurm_.environment()); }),
              AllOf(HasSubstr("at most 1001 tasks"), HasSubstr("among 3 sweeps")));
}

TEST_F(SlurmArraySubmission, SubmitsFailedTasksAgainAndKeepsTheirOutput) {
  write_failed_sweep();
  slurm_.make("sbatch", "echo 15");
  auto planned = plan_reruns({.sweep = "sweep", .options = {"-c1"}}, slurm_.environment());
  EXPECT_THAT(planned.reruns, ElementsAre(SweepRerun{"", {0}, {"-c1"}}, SweepRerun{"", {1}, {"-t", "5", "-c1"}}));
  std::vector<std::string> jobs;
  const auto failure = submit_reruns(planned, slurm_.environment(), heard_.tell(),
                                     [&](const RerunEnd& end) { jobs.push_back(end.rerun.job); });
  EXPECT_FALSE(failure);
  EXPECT_THAT(jobs, ElementsAre("15", "15"));
  EXPECT_THAT(slurm_.calls("sbatch")[1], AllOf(HasSubstr("--array=1 "), HasSubstr(" -t 5 -c1")));
  EXPECT_EQ(test::slurp("sweep/0/slurm.out.0"), "printed\n");
  EXPECT_EQ(open_sweep("sweep", slurm_.environment()).sweep.reruns.size(), 3U);
  EXPECT_THAT(test::message_of([&] { plan_reruns({.sweep = "7_1"}, slurm_.environment()); }),
              HasSubstr("names one task"));
}

TEST_F(SlurmArraySubmission, TriesNoFurtherArrayWhenOneMayRun) {
  write_failed_sweep();
  const auto ends = [&](std::optional<Error>& failure) {
    auto planned = plan_reruns({.sweep = "sweep"}, slurm_.environment());
    std::vector<std::string> texts;
    failure = submit_reruns(planned, slurm_.environment(), heard_.tell(), [&](const RerunEnd& end) {
      texts.push_back(!end.is_tried ? "not tried" : end.failure ? std::string(name(end.failure->code())) : "submitted");
    });
    return texts;
  };
  std::optional<Error> failure;
  slurm_.make("sbatch", "exit 0");  // no number
  EXPECT_THAT(ends(failure), ElementsAre(name(ErrorCode::kDataLoss), "not tried"));
  EXPECT_THAT(failure_of_several(*failure, 2, 2).what(),
              AllOf(HasSubstr("not known whether 1 of 2 arrays"), HasSubstr("1 more was not submitted")));
  std::filesystem::rename("sweep/0/slurm.out.0", "sweep/0/slurm.out");
  // A refusal is certain, and the next one may succeed.
  slurm_.make("sbatch", "case \"$*\" in *--array=0*) echo refused >&2; exit 1;; esac; echo 16");
  EXPECT_THAT(ends(failure), ElementsAre(name(ErrorCode::kFailedPrecondition), "submitted"));
  EXPECT_EQ(failure_of_several(*failure, 1, 2).what(),
            std::string("1 of 2 arrays were not submitted; --rerun submits their tasks later"));
  EXPECT_EQ(test::slurp("sweep/0/slurm.out"), "printed\n") << "it has its name again";
}

TEST_F(SlurmArraySubmission, RunsTheScriptOfItsUserInItsOldFolderAlone) {
  write_failed_sweep();
  std::filesystem::rename("sweep", "moved");
  EXPECT_THAT(
      test::message_of([&] { plan_reruns({.sweep = "moved"}, slurm_.environment()); }, ErrorCode::kFailedPrecondition),
      HasSubstr("its script runs them there"));
  std::filesystem::remove("moved/sweep.sh");
  EXPECT_THAT(test::message_of([&] { plan_reruns({.sweep = "moved"}, slurm_.environment()); }, ErrorCode::kNotFound),
              HasSubstr("sweep.sh does not exist any more"));
}

TEST_F(SlurmArraySubmission, ResultsSayWhatBecameOfTheTasks) {
  write_failed_sweep();
  slurm_.write("sweep/0/status", "0 7 0\n");
  SweepResults results{.folder = open_sweep("sweep", slurm_.environment())};
  results.states = sweep_states(results.folder, slurm_.environment());
  results.metrics = {{{"loss", 0.25}, {"accuracy", 1.0 / 3}}, {}};
  EXPECT_EQ(to_csv(to_table(results, "")),
            "task,state,a,loss,accuracy\n0,done,1,0.25,0.3333333333333333\n1,failed (4),2,,\n");
  EXPECT_EQ(to_table(results, "-").rows[0].back(), "0.333333");
  EXPECT_EQ(exit_status_of(results), 1);
  tell_ends(results, heard_.tell());
  EXPECT_THAT(heard_.yoke,
              ElementsAre("task 1 failed (4) as job 8_1; its output is " + slurm_.path("sweep/1/slurm.out"),
                          "`yoke slurm array --rerun " + slurm_.path("sweep") + "` runs them again"));
  // slurmctld does not answer, so a task that had failed may wait again.
  slurm_.make_failing("scontrol", test::kNoController);
  results.states = sweep_states(results.folder, slurm_.environment());
  EXPECT_EQ(exit_status_of(results), 75);
  heard_.yoke.clear();
  tell_ends(results, heard_.tell());
  EXPECT_THAT(heard_.yoke.back(), HasSubstr("it is not known whether all tasks have ended: scontrol cannot reach"));
  // What Slurm has forgotten it does not learn again.
  results.states = {{{SweepEnd::kNotKnown, "not known"}, {SweepEnd::kDone, "done"}}, std::nullopt};
  EXPECT_EQ(exit_status_of(results), 66);
  results.states = {{{SweepEnd::kNotKnown, "not known"}, {SweepEnd::kNotEnded, "not ended"}}, std::nullopt};
  EXPECT_EQ(exit_status_of(results), 75);
  results.states = {{{SweepEnd::kDone, "done"}, {SweepEnd::kDone, "done"}}, std::nullopt};
  EXPECT_EQ(exit_status_of(results), 0);
}

TEST_F(SlurmArraySubmission, ASweepIsFoundByItsJobAndItsTasksBySlurm) {
  write_failed_sweep();
  const auto folder = slurm_.path("sweep");
  const auto task = [&](const std::string& job, const std::string& place) {
    return test::scontrol_job("JobId=20 ArrayJobId=" + job + " ArrayTaskId=1", "RUNNING", "   WorkDir=" + place + "\n");
  };
  slurm_.make_scontrol({task("8", folder)});
  const auto by_job = open_sweep("8", slurm_.environment());
  EXPECT_EQ(by_job.path, folder);
  EXPECT_EQ(sweep_states(by_job, slurm_.environment()).tasks[1].text, "failed (4)") << "it wrote its status";
  std::filesystem::remove("sweep/1/status");
  EXPECT_EQ(sweep_states(by_job, slurm_.environment()).tasks[1].text, "not ended");
  // Slurm uses numbers again: this job is another one.
  slurm_.make_scontrol({task("8", "/elsewhere")});
  EXPECT_EQ(sweep_states(by_job, slurm_.environment()).tasks[1].text, "not known");
  auto foreign = by_job;
  foreign.sweep.cluster = "beta";
  EXPECT_THAT(sweep_states(foreign, slurm_.environment()).unanswered->what(), HasSubstr("is of cluster beta"));
  EXPECT_THAT(test::message_of([&] { open_sweep("no", slurm_.environment()); }, ErrorCode::kNotFound),
              HasSubstr("no has no sweep"));
  slurm_.make_scontrol({""});
  slurm_.make("sacct", "exit 0");
  EXPECT_THAT(test::message_of([&] { open_sweep("99", slurm_.environment()); }, ErrorCode::kNotFound),
              HasSubstr("Slurm knows no job 99"));
}

}  // namespace
}  // namespace yoke::slurm
