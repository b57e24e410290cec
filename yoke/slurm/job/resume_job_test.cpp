#include "yoke/slurm/job/resume_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "tests/support/fake_slurm.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/device/process/info.h"
#include "yoke/slurm/job/sweep.h"

namespace yoke::slurm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(SlurmNewestCheckpoint, HasANameOfCheckpointsAndTheLatestTime) {
  const test::TemporaryFolder folder;
  const auto write = [&](const std::string& file, int age) {
    folder.write(file, "");
    std::filesystem::last_write_time(folder.path(file),
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(age));
  };
  EXPECT_FALSE(find_checkpoint(folder.path(), 100).newest);
  EXPECT_THAT(checkpoint_text(folder.path()), HasSubstr("no checkpoint was found below"));
  write("a/old.pt", 9);
  write("a/b/c/d/newer.safetensors", 5);
  for (const auto* other : {"train.log", "model.pt.tmp", ".git/newest.pt", "a/b/c/d/e/deep.ckpt"}) write(other, 1);
  EXPECT_EQ(find_checkpoint(folder.path(), 100).newest->path, folder.path("a/b/c/d/newer.safetensors"));
  write("global_step7", 4);
  EXPECT_EQ(find_checkpoint(folder.path(), 100).newest->path, folder.path("global_step7"));
  EXPECT_THAT(checkpoint_text(folder.path()), HasSubstr("the newest checkpoint is " + folder.path("global_step7")));
  EXPECT_FALSE(find_checkpoint(folder.path(), 2).is_complete);
}

TEST(SlurmResumeJob, NamesEachJobOnce) {
  const auto names = [](const std::string& word) {
    std::vector<std::string> texts;
    for (const auto& name : names_to_resume(word)) texts.push_back(to_text(name));
    return texts;
  };
  EXPECT_THAT(names("7,5,7"), ElementsAre("5", "7"));
  EXPECT_THAT(names("42_[1-2],42_1"), ElementsAre("42_1", "42_2"));
  EXPECT_THAT(names("130,130+1"), ElementsAre("130")) << "components go on together";
}

class SlurmResume : public testing::Test {
 protected:
  /// A job of this user that prints into the files o and e.
  std::string job(const std::string& state, const std::string& numbers = "JobId=7") const {
    auto text = test::scontrol_job(
        numbers, state,
        "   WorkDir=" + slurm_.path() + "\n   StdErr=" + slurm_.path("e") + "\n   StdOut=" + slurm_.path("o") + "\n");
    return text.replace(text.find("ada"), 3, device::user_name(geteuid()));
  }
  PlannedResume plan(const JobName& name = {7, {}}) const { return plan_resume(name, "", slurm_.environment()); }
  std::string refusal(ErrorCode code, const JobName& name = {7, {}}) const {
    return test::message_of([&] { plan(name); }, code);
  }

  test::FakeSlurm slurm_;
  test::Heard heard_;
};

TEST_F(SlurmResume, PutsAJobBackAndKeepsWhatItPrinted) {
  for (const auto* file : {"o", "e", "o.0"}) slurm_.write(file, file);
  slurm_.write("step-7.pt", "");
  slurm_.write("slurm-7-rank0.out", "");
  slurm_.make_scontrol({job("FAILED")});
  const auto planned = plan();
  EXPECT_EQ(planned.success, "");
  EXPECT_THAT(describe(planned),
              AllOf(HasSubstr("job 7 (FAILED) would be put back into the queue: scontrol requeue 7\n"),
                    HasSubstr("step-7.pt")));
  EXPECT_EQ(test::slurp("o"), "o") << "nothing is done";
  const auto text = resume(planned, slurm_.environment(), heard_.tell());
  EXPECT_THAT(text, AllOf(HasSubstr("job 7 (FAILED) is in the queue again\n"), HasSubstr("step-7.pt"),
                          HasSubstr("what it has printed is in " + slurm_.path("o.1") + ", " + slurm_.path("e.0")),
                          HasSubstr("it goes on in the files of its ranks, from " + slurm_.path("slurm-7-rank0.out"))));
  EXPECT_EQ(slurm_.calls("scontrol").back(), "requeue 7");
  EXPECT_EQ(test::slurp("o.1"), "o");
  slurm_.make_scontrol({job("COMPLETED")});
  EXPECT_THAT(plan().success, HasSubstr("job 7 is COMPLETED: it ended with status 0"));
}

TEST_F(SlurmResume, GivesFilesTheirNamesAgainIfSlurmRefuses) {
  for (const auto* file : {"o", "e"}) slurm_.write(file, file);
  slurm_.make_scontrol({job("FAILED")});
  const auto planned = plan();
  const auto fail = [&](const char* says, ErrorCode code) {
    slurm_.make_failing("scontrol", says);
    return test::message_of([&] { resume(planned, slurm_.environment(), heard_.tell()); }, code);
  };
  EXPECT_THAT(fail("Job is not requeueable", ErrorCode::kFailedPrecondition), HasSubstr("submitted with --no-requeue"));
  EXPECT_EQ(test::slurp("o"), "o");
  // If there is no answer, the job may be back, and Slurm truncates the files.
  EXPECT_THAT(fail(test::kNoController, ErrorCode::kUnavailable),
              AllOf(HasSubstr("it may be in the queue nevertheless"), HasSubstr(slurm_.path("o.0"))));
  EXPECT_EQ(test::slurp("o.0"), "o");
  // A file that is a link cannot be kept, and the other one keeps its name.
  slurm_.write("o", "o");
  std::filesystem::remove("e");
  std::filesystem::create_symlink("o", "e");
  EXPECT_EQ(test::error_of([&] { resume(planned, slurm_.environment(), heard_.tell()); }).code(),
            ErrorCode::kPermissionDenied);
  EXPECT_EQ(test::slurp("o"), "o");
}

TEST_F(SlurmResume, RefusesWhatCannotGoOn) {
  slurm_.make_scontrol({job("RUNNING")});
  EXPECT_THAT(refusal(ErrorCode::kFailedPrecondition), HasSubstr("job 7 is RUNNING, so there is nothing to resume"));
  slurm_.make_scontrol({test::scontrol_job("JobId=7", "FAILED")});
  EXPECT_THAT(refusal(ErrorCode::kPermissionDenied), HasSubstr("job 7 is of ada, who must resume it"));
  slurm_.make_scontrol(
      {job("FAILED", "JobId=8 ArrayJobId=7 ArrayTaskId=3") + job("FAILED", "JobId=9 ArrayJobId=7 ArrayTaskId=4")});
  EXPECT_THAT(refusal(ErrorCode::kInvalidArgument), HasSubstr("name the task to resume, as 7_3"));
  // The task of a sweep that was submitted again would get a second job in its folder.
  slurm_.make_scontrol({job("FAILED", "JobId=8 ArrayJobId=7 ArrayTaskId=0")});
  Sweep sweep{.tasks = std::vector<SweepTask>(1), .job = "7", .folder = slurm_.path()};
  slurm_.write("sweep.json", to_text(sweep));
  EXPECT_NO_THROW(plan({7, 0}));
  sweep.reruns = {{"9", {0}, {}}};
  slurm_.write("sweep.json", to_text(sweep));
  EXPECT_THAT(refusal(ErrorCode::kFailedPrecondition, {7, 0}), HasSubstr("has run again, as job 9_0"));
}

TEST_F(SlurmResume, SubmitsTheKeptScriptOfAForgottenJob) {
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("nothing tells where it was submitted"));
  const auto keep = [&](const std::string& script) {
    slurm_.write("run/slurm-7.sh", script);
    slurm_.write("state/yoke/slurm/7/job.json", R"({"folder": ")" + slurm_.path("run") + R"(", "script": ")" +
                                                    slurm_.path("run/slurm-7.sh") +
                                                    R"(", "name": "tale", "output_pattern": "%x-%j.txt"})");
  };
  keep("#!/bin/sh\n");
  EXPECT_THAT(refusal(ErrorCode::kInvalidArgument, {7, 1}), HasSubstr("job 7 was no array, so it has no task 1"));
  const auto planned = plan();
  EXPECT_THAT(describe(planned), HasSubstr("its script " + slurm_.path("run/slurm-7.sh") +
                                           " would be submitted again in " + slurm_.path("run") + ", as a new job"));
  slurm_.make("sbatch", "pwd >" + slurm_.path("where") + "; cat >" + slurm_.path("got") + "; echo 12");
  EXPECT_THAT(resume(planned, slurm_.environment(), heard_.tell()),
              AllOf(HasSubstr("the new job is 12\n"), HasSubstr("output  " + slurm_.path("run/tale-12.txt") + "\n"),
                    HasSubstr("yoke slurm logs 12 -f")));
  EXPECT_EQ(test::slurp(slurm_.path("where")), slurm_.path("run") + "\n");
  EXPECT_EQ(test::slurp(slurm_.path("run/slurm-12.sh")), "#!/bin/sh\n");

  keep("#!/bin/sh\n#SBATCH --array=2-3\n");
  EXPECT_THAT(refusal(ErrorCode::kInvalidArgument), HasSubstr("name the task to resume, as 7_2"));
  EXPECT_THAT(refusal(ErrorCode::kInvalidArgument, {7, 4}), HasSubstr("so it has no task 4"));
  EXPECT_EQ(plan({7, 3}).script, "#!/bin/sh\n#SBATCH --array=3\n");
  std::filesystem::remove(slurm_.path("run/slurm-7.sh"));
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("slurm-7.sh does not exist any more"));
}

TEST_F(SlurmResume, TellsHowAForgottenJobWithoutANoteWasSubmitted) {
  const auto account = [&](const std::string& line) {
    slurm_.make("sacct", "echo '7|7|FAILED|1:0|1000|1000|1060|1063|3|5|1||4|16M||00:01|0||||||n1|main|ada|None|" +
                             slurm_.path() + "|t|" + line + "'");
  };
  account("sbatch -N2 job.sh");
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("submitted in " + slurm_.path() + " by: sbatch -N2 job.sh"));
  account("sbatch -N2");
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("a script from standard input, of which Slurm keeps nothing"));
  slurm_.write("sweep.json", "{}");
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("`yoke slurm array --rerun " + slurm_.path() + "` runs all"));
}

}  // namespace
}  // namespace yoke::slurm
