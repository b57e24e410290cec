#include "yoke/slurm/job/job_top.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_slurm.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/table.h"

namespace yoke::slurm {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const Job kJob{
    .id = "7", .number = 7, .name = "tale", .user = "ada", .node_list = "n[1-2]", .num_nodes = 2, .num_gpus = 2};
const std::vector<DeviceRow> kRows = {{.id = "0", .name = "A100", .state = "busy", .utilization_percent = 87}};

TEST(SlurmJobTop, APageHasTheDevicesOfEachNode) {
  const std::map<std::string, TopNode> nodes = {{"n1", {kRows, seconds(1)}}, {"n2", {kRows, seconds(9)}}, {"n3", {}}};
  const auto page = top_page(kJob, nodes, seconds(5), kUnlimitedWidth);
  const auto lines = test::lines_of(page);
  EXPECT_EQ(lines.at(0), "job 7 (tale) of ada: 2 nodes");
  EXPECT_THAT(lines.at(2), AllOf(HasSubstr("n1 "), HasSubstr("87 %"), HasSubstr("A100")));
  EXPECT_THAT(lines.at(3), AllOf(HasSubstr("n2 "), HasSubstr("no answer for 9")));
  EXPECT_THAT(lines.at(4), AllOf(HasSubstr("n2 "), HasSubstr("87 %"))) << "what it said last";
  EXPECT_THAT(lines.at(5), AllOf(HasSubstr("n3 "), HasSubstr("no answer"), Not(HasSubstr("no answer for"))));
}

TEST(SlurmJobTop, TheStepSharesWhatTheJobHas) {
  const auto argv = top_step(kJob, "/opt/yoke", {.interval_s = 2, .is_once = true});
  EXPECT_THAT(argv, testing::IsSupersetOf({"srun", "--jobid=7", "--overlap", "--nodes=2", "--ntasks=2", "/opt/yoke",
                                           "--on-node", "--once"}));
  EXPECT_EQ(argv.back(), "7");
}

TEST(SlurmJobTop, ANodeStreamsUntilNobodyReads) {
  class Source : public device::Source {
   public:
    device::Snapshot sample(const device::Want& /*want*/) override { return {}; }
  } source;
  std::vector<std::string> lines;
  const auto print = [&](const std::string& text) {
    lines.push_back(text);
    return lines.size() < 3;
  };
  stream_devices(source, "n1", {.interval_s = 0.001}, print);
  EXPECT_EQ(lines.size(), 3U);
  stream_devices(source, "n1", {.interval_s = 3600, .is_once = true}, [](const auto&) { return true; });
  DeviceLines parser;
  EXPECT_EQ(parser.take(test::lines_of(lines[0]).at(0))->node, "n1");
}

class SlurmWatchJob : public testing::Test {
 protected:
  /// Watches, until `num_pages` pages are drawn.
  void watch(const TopOptions& options, size_t num_pages = 1) {
    watch_job(kJob, "yoke", options, slurm_.environment(),
              {.width = [] { return kUnlimitedWidth; },
               .draw =
                   [&](const std::string& page) {
                     pages_.push_back(page);
                     return pages_.size() < num_pages;
                   }},
              heard_.tell());
  }
  /// What the nodes say, and then the script.
  void make_srun(const std::vector<std::string>& nodes, const std::string& script) const {
    std::string lines;
    for (const auto& node : nodes) lines += to_lines(node, kRows);
    slurm_.write("lines", lines);
    slurm_.make("srun", "cat " + slurm_.path("lines") + "\n" + script);
  }

  test::FakeSlurm slurm_;
  test::Heard heard_;
  std::vector<std::string> pages_;
};

TEST_F(SlurmWatchJob, EndsTheStepWhenNobodyLooks) {
  make_srun({"n1", "n2", "n9"},
            "trap 'echo ended >" + slurm_.path("end") + "; exit' TERM; while :; do sleep 0.01; done");
  watch({.interval_s = 0.001}, 2);
  EXPECT_EQ(pages_.size(), 2U);
  EXPECT_THAT(pages_[0], AllOf(HasSubstr("n1 "), HasSubstr("n2 "), Not(HasSubstr("n9"))));
  EXPECT_EQ(test::slurp(slurm_.path("end")), "ended\n");
  EXPECT_THAT(heard_.yoke, IsEmpty());
  pages_.clear();
  watch({.is_once = true});
  EXPECT_EQ(pages_.size(), 1U);
}

TEST_F(SlurmWatchJob, SaysThatTheJobHasEnded) {
  make_srun({"n1", "n2"}, "");
  watch({.interval_s = 0.001}, 1000);
  EXPECT_THAT(heard_.yoke, ElementsAre("job 7 has ended, or its step was ended"));
}

TEST_F(SlurmWatchJob, SaysWhyNoStepStarts) {
  slurm_.make("srun", "echo 'srun: a' >&2; echo 'srun: error: no' >&2; exit 3");
  EXPECT_EQ(test::message_of([&] { watch({.is_once = true}); }, ErrorCode::kUnavailable),
            "srun could not start a step on the nodes of job 7 (status 3): srun: error: no");
}

TEST_F(SlurmWatchJob, WatchesARunningJobOrTask) {
  const auto find = [&](const std::string& word) { return job_to_watch(word, slurm_.environment()); };
  EXPECT_EQ(test::error_of([&] { find("7"); }).code(), ErrorCode::kNotFound);
  slurm_.make_scontrol({test::scontrol_job("JobId=7", "PENDING", "", "JobHeldUser")});
  EXPECT_THAT(test::message_of([&] { find("7"); }, ErrorCode::kFailedPrecondition),
              HasSubstr("job 7 is PENDING (JobHeldUser: its user holds it), so it has no nodes to watch"));
  slurm_.make_scontrol({test::scontrol_job("JobId=8 ArrayJobId=7 ArrayTaskId=1", "RUNNING") +
                        test::scontrol_job("JobId=9 ArrayJobId=7 ArrayTaskId=2", "COMPLETED")});
  EXPECT_THAT(test::message_of([&] { find("7"); }), HasSubstr("job 7 is an array; name one task, as 7_1"));
  slurm_.make_scontrol({test::scontrol_job("JobId=8 ArrayJobId=7 ArrayTaskId=1", "RUNNING")});
  EXPECT_EQ(find("7_1").number, 8);
}

}  // namespace
}  // namespace yoke::slurm
