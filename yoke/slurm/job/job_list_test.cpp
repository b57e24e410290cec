#include "yoke/slurm/job/job_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/support/fake_slurm.h"
#include "yoke/base/table.h"
#include "yoke/device/process/info.h"

namespace yoke::slurm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class SlurmJobList : public testing::Test {
 protected:
  SlurmJobList() {
    slurm_.write("squeue",
                 "2_[2-5%2]|2|PENDING|JobHeldUser|ada|main|0:00|5:00|1|1|cpu=1|N/A|N/A||N/A|1000|0|wrap|\n"
                 "2_0|5|RUNNING|None|ada|main|0:01|5:00|1|1|cpu=1,gres/gpu=2|N/A|N/A|n1|1000|1000|3|a|\n"
                 "6+0|6|RUNNING|None|ada|main|0:01|5:00|1|1|cpu=1|N/A|N/A|n1|1000|1000|0|het|\n"
                 "6+1|7|RUNNING|None|ada|main|0:01|5:00|1|1|cpu=1|N/A|N/A|n2|1000|1000|0|het|\n");
    slurm_.make("squeue", "cat " + slurm_.path("squeue"));
  }
  JobList list(const std::vector<std::string>& words, bool is_all = false) const {
    return list_jobs(words, is_all, slurm_.environment());
  }
  std::vector<std::string> ids(const std::string& word) const {
    std::vector<std::string> result;
    for (const auto& job : list({word}).jobs) result.push_back(job.id);
    return result;
  }

  test::FakeSlurm slurm_;
};

TEST_F(SlurmJobList, SaysWhereJobsAreOrWhyTheyWait) {
  const auto all = list({}, true);
  EXPECT_THAT(slurm_.calls("squeue").back(), Not(HasSubstr("--user")));
  const auto text = to_text(all, kUnlimitedWidth);
  EXPECT_THAT(text, AllOf(HasSubstr("user"), HasSubstr("(JobHeldUser)"), HasSubstr("  n1\n"),
                          HasSubstr("\n\nJobHeldUser: its user holds it; `scontrol release JOB` lets it start\n")));
  EXPECT_FALSE(to_json(all).contains("missing"));
  const auto own = list({});
  EXPECT_THAT(slurm_.calls("squeue").back(), HasSubstr("--user=" + device::user_name(geteuid())));
  EXPECT_THAT(test::lines_of(to_text(own, kUnlimitedWidth)).at(0), Not(HasSubstr("user")));
  slurm_.write("squeue", "");
  EXPECT_EQ(to_text(list({}), 80), "no job of " + device::user_name(geteuid()) + " waits or runs on this cluster\n");
  EXPECT_EQ(to_text(list({}, true), 80), "no job waits or runs on this cluster\n");
  EXPECT_EQ(to_text(list({"8,9"}), 80),
            "jobs 8, 9 neither wait nor run; `yoke slurm report` shows jobs that have ended\n");
}

TEST_F(SlurmJobList, HasTheJobsThatAUserNames) {
  EXPECT_THAT(ids("2"), ElementsAre("2_[2-5%2]", "2_0"));
  EXPECT_THAT(ids("2_0"), ElementsAre("2_0"));
  EXPECT_THAT(ids("2_3"), ElementsAre("2_[2-5%2]")) << "it waits with others";
  EXPECT_THAT(ids("2_[0-1]"), ElementsAre("2_0"));
  EXPECT_THAT(ids("6+1"), ElementsAre("6+1"));
  EXPECT_THAT(ids("6"), ElementsAre("6+0", "6+1"));
  EXPECT_THAT(ids("5"), ElementsAre("2_0")) << "a task has a number of its own";
  const auto some = list({"2_0", "9,2_[7-9]"});
  EXPECT_THAT(some.missing, ElementsAre("9", "2_[7-9]"));
  EXPECT_THAT(to_text(some, kUnlimitedWidth), HasSubstr("\n\njobs 9, 2_[7-9] neither wait nor run"));
  EXPECT_EQ(to_json(some).at("missing"), nlohmann::ordered_json({"9", "2_[7-9]"}));
  EXPECT_EQ(to_json(list({"5"})).at("missing"), nlohmann::ordered_json::array());
}

}  // namespace
}  // namespace yoke::slurm
