#include "yoke/slurm/job/job_evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/fake_slurm.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/slurm/job/sweep.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SlurmJobEvidence : public testing::Test {
 protected:
  std::vector<Evidence> find(const std::string& word) const {
    return evidence_of(report_targets(word, slurm_.environment()).at(0), slurm_.environment());
  }
  std::string job(const std::string& numbers, const std::string& out = "o") const {
    return test::scontrol_job(numbers, "COMPLETED",
                              "   SubmitTime=1000 EligibleTime=1000\n   StartTime=1010 EndTime=1110 Deadline=N/A\n"
                              "   NodeList=n1\n   WorkDir=" +
                                  slurm_.path() + "\n   StdErr=" + slurm_.path(out) +
                                  "\n   StdOut=" + slurm_.path(out) + "\n");
  }
  void write_sample(int64_t number, int64_t restart, double begin) const {
    const NodeSample sample{
        .job = number, .step = "0", .host = "n1", .restart = restart, .begin = begin, .seconds = 50};
    slurm_.write("state/yoke/slurm/" + std::to_string(number) + "/" + std::to_string(restart) + ".json",
                 to_json(sample).dump());
  }

  test::FakeSlurm slurm_;
};

TEST_F(SlurmJobEvidence, OfAWordOfTheCommandLine) {
  const auto names = [&](const std::string& word) {
    std::vector<std::string> texts;
    for (const auto& target : report_targets(word, slurm_.environment())) {
      for (const auto& name : target.names) texts.push_back(to_text(name) + (target.file.empty() ? "" : " in a name"));
    }
    return texts;
  };
  EXPECT_THAT(names("7"), ElementsAre("7"));
  EXPECT_THAT(names("5-7"), ElementsAre("5", "6", "7"));
  EXPECT_EQ(names("logs/slurm-7_1.out").at(0), "7_1 in a name");
  slurm_.write("5-7", "");
  EXPECT_THAT(names("5-7"), testing::Contains("7 in a name")) << "it is a file";
  Sweep sweep{.tasks = std::vector<SweepTask>(2), .job = "7", .reruns = {{"9", {1}, {}}}};
  slurm_.write("sweep/sweep.json", to_text(sweep));
  EXPECT_THAT(names("sweep/1/slurm.out"), ElementsAre("9_1"));
  EXPECT_THAT(test::message_of([&] { names("nothing"); }), HasSubstr("'nothing' names no job of Slurm"));
  sweep.cluster = "beta";
  slurm_.write("sweep/sweep.json", to_text(sweep));
  slurm_.make_scontrol({""});
  EXPECT_EQ(test::error_of([&] { names("sweep/1/slurm.out"); }).code(), ErrorCode::kFailedPrecondition);
}

TEST_F(SlurmJobEvidence, HasTheSamplesOfThisRunAlone) {
  slurm_.make_scontrol({job("JobId=7")});
  write_sample(7, 0, 1015);
  write_sample(7, 1, 1016);  // the job has no such restart
  slurm_.write("state/yoke/slurm/7/other.json", "{}");
  const auto found = find("7");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].job->state, "COMPLETED");
  ASSERT_EQ(found[0].samples.size(), 1U);
  EXPECT_EQ(found[0].samples[0].begin, 1015);
  EXPECT_THAT(found[0].why_no_accounts, HasSubstr("keeps no accounts"));
  EXPECT_FALSE(found[0].reader.empty());
}

TEST_F(SlurmJobEvidence, OfSamplesAloneIsBetterThanNothing) {
  EXPECT_THAT(test::message_of([&] { find("7"); }, ErrorCode::kNotFound),
              HasSubstr("the samples of this user know job 7"));
  slurm_.make_failing("scontrol", test::kNoController);
  EXPECT_EQ(test::error_of([&] { find("7"); }).code(), ErrorCode::kUnavailable);
  write_sample(7, 0, 1015);
  const auto found = find("7");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_FALSE(found[0].job);
  EXPECT_THAT(found[0].why_no_job, HasSubstr("scontrol cannot reach slurmctld"));
}

TEST_F(SlurmJobEvidence, OfAnArrayIsInTheOrderOfTasks) {
  // The last task has the number of the array.
  slurm_.make_scontrol({job("JobId=7 ArrayJobId=7 ArrayTaskId=11") + job("JobId=8 ArrayJobId=7 ArrayTaskId=2")});
  const auto ids = [&](const std::string& word) {
    std::vector<std::string> texts;
    for (const auto& evidence : find(word)) texts.push_back(evidence.job->id);
    return texts;
  };
  EXPECT_THAT(ids("7"), ElementsAre("7_2", "7_11"));
  EXPECT_THAT(ids("7_[10-12]"), ElementsAre("7_11"));
  EXPECT_THAT(test::message_of([&] { find("7_[3-4]"); }, ErrorCode::kNotFound), HasSubstr("these tasks of job 7"));
  const auto is_whole = [&](const std::string& word) {
    std::vector<TaskReport> tasks;
    for (const auto& evidence : find(word)) tasks.push_back({make_report(evidence), {}});
    return is_whole_array(report_targets(word, slurm_.environment())[0], tasks);
  };
  EXPECT_TRUE(is_whole("7"));
  EXPECT_FALSE(is_whole("7_[2,11]"));
}

TEST_F(SlurmJobEvidence, OfAFileIsThatOfTheJobThatWritesIt) {
  // Of two numbers in the name, the second one is that of the job.
  slurm_.write("o-1-2.out", "");
  slurm_.make("scontrol", "case \"$*\" in *' 1') cat " + slurm_.path("answer") + ";; *) echo '" + test::kUnknownJob +
                              "' >&2; exit 1;; esac");
  slurm_.write("answer", job("JobId=1", "o-1-2.out"));
  EXPECT_EQ(find("o-1-2.out").at(0).job->number, 1);
  EXPECT_THAT(find("o-1-2.out")[0].doubts, IsEmpty());
  slurm_.write("answer", job("JobId=1", "other.out"));
  EXPECT_THAT(test::message_of([&] { find("o-1.out"); }, ErrorCode::kNotFound),
              HasSubstr("o-1.out is not an output of job 1, which writes another file"));
  // It has the right name, but lies in another folder.
  slurm_.write("answer", job("JobId=1", "o-1.out"));
  EXPECT_THAT(find("moved/o-1.out").at(0).doubts, ElementsAre(HasSubstr("the number was taken from its name")));
}

}  // namespace
}  // namespace yoke::slurm
