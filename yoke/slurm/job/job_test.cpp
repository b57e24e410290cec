#include "yoke/slurm/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Time at(int64_t since_1970) { return Time(Seconds(since_1970)); }

// What Slurm 22.05.8 printed, with SLURM_TIME_FORMAT=%s; the names contain the separator and blanks.
TEST(SlurmJob, IsReadFromSqueue) {
  const auto jobs = parse_squeue(
      "CLUSTER: yoke\n"
      "2_[2-5%2]|2|PENDING|JobArrayTaskLimit|root|main|0:00|5:00|1|1|cpu=1,mem=8000M,node=1,billing=1,gres/"
      "gpu=2|gres:gpu:2|N/A||N/A|"
      "1795449921|0|wrap|\n"
      "4|4|PENDING|Priority|root|main|0:00|UNLIMITED|1|1|cpu=1,node=1|N/A|N/A||1795450800|1795449921|0|wrap|\n"
      "1|1|RUNNING|None|root|main|1-00:00:01|5:00|2|4|cpu=4,node=2,billing=4,gres/"
      "gpu=4|N/A|N/A|n[1-2]|1795449921|1795449921|2|a "
      "b|c=d|\n"
      "2_0|5|RUNNING|None|root|main|0:01|5:00|1|1|cpu=1,node=1,gres/gpu:a100=1,gres/"
      "gpu:h100=2|N/A|gres:gpu:1|n1|1795449921|1795449921|0"
      "|a name of more than twenty letters|\n");
  ASSERT_EQ(jobs.size(), 4U);
  EXPECT_EQ(jobs[0].id, "2_[2-5%2]");
  EXPECT_EQ(jobs[0].array, 2);
  EXPECT_EQ(jobs[0].array_task, "2-5%2");
  EXPECT_EQ(jobs[0].num_gpus, 2);
  EXPECT_EQ(jobs[0].started, std::nullopt);
  EXPECT_TRUE(jobs[0].is_waiting());
  EXPECT_EQ(jobs[1].started, at(1795450800));
  EXPECT_EQ(jobs[1].limit, std::nullopt);
  EXPECT_EQ(jobs[2].name, "a b|c=d");
  EXPECT_EQ(jobs[2].reason, "");
  EXPECT_EQ(jobs[2].elapsed, Seconds(86'401));
  EXPECT_EQ(jobs[2].num_restarts, 2);
  EXPECT_EQ(parse_squeue("1|1|RUNNING|None|ada|main|0:01|5:00|1|1|cpu=1|N/A|N/A|n1|N/A|N/A|0|two\nlines|\n")[0].name,
            "two\nlines");
  EXPECT_EQ(jobs[3].id, "2_0");
  EXPECT_EQ(jobs[3].number, 5);
  EXPECT_EQ(jobs[3].num_gpus, 3);
  EXPECT_EQ(jobs[3].name, "a name of more than twenty letters");
}

TEST(SlurmJob, IsReadFromScontrol) {
  const auto jobs = parse_scontrol(
      "JobId=8 ArrayJobId=2 ArrayTaskId=0 ArrayTaskThrottle=2 JobName=a b NodeList=x\n"
      "   UserId=ada(7001) GroupId=ada(7001) MCS_label=N/A\n"
      "   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)\n"
      "   Requeue=1 Restarts=3 BatchFlag=1 Reboot=0 ExitCode=3:0\n"
      "   RunTime=00:00:21 TimeLimit=00:05:00 TimeMin=N/A\n"
      "   SubmitTime=1795449733 EligibleTime=1795449733\n"
      "   StartTime=1795449733 EndTime=1795449754 Deadline=N/A\n"
      "   NodeList=n[1-2]\n"
      "   BatchHost=n1\n"
      "   NumNodes=2 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n"
      "   TRES=cpu=2,node=2,billing=2,gres/gpu=4\n"
      "   Command=/home/ada/my job.sh\n"
      "   WorkDir=/home/ada/two words\n"
      "   StdErr=/home/ada/two words/o-8-%N.out\n"
      "   StdIn=/dev/null\n"
      "   StdOut=/home/ada/two words/o-8-%N.out\n"
      "   Power=\n"
      "   \n\n"
      "JobId=9 JobName=true\n"
      "   JobState=PENDING Reason=BeginTime Dependency=(null)\n"
      "   NodeList=\n"
      "   NumNodes=1-1 NumCPUs=1\n"
      "   Command=(null)\n");
  ASSERT_EQ(jobs.size(), 2U);
  const auto& job = jobs[0];
  EXPECT_EQ(job.id, "2_0");
  EXPECT_EQ(job.number, 8);
  EXPECT_EQ(job.name, "a b NodeList=x");
  EXPECT_EQ(job.user, "ada");
  EXPECT_EQ(job.state, "FAILED");
  EXPECT_TRUE(job.has_ended());
  EXPECT_EQ(job.exit_code, 3);
  EXPECT_EQ(job.num_restarts, 3);
  EXPECT_EQ(job.limit, Seconds(300));
  EXPECT_EQ(job.node_list, "n[1-2]");
  EXPECT_EQ(job.num_gpus, 4);
  EXPECT_EQ(job.command, "/home/ada/my job.sh");
  EXPECT_EQ(expand_path(job.out, job), "/home/ada/two words/o-8-n1.out");
  EXPECT_EQ(jobs[1].id, "9");
  EXPECT_EQ(jobs[1].num_nodes, 1);
  EXPECT_EQ(jobs[1].command, "");
  EXPECT_THAT(parse_scontrol("No jobs in the system\n"), IsEmpty());
}

TEST(SlurmJob, HasItsGpusInTheRequest) {
  for (const auto* text : {"gres:gpu:2", "gres/gpu:2", "gres/gpu:a100:2", "gres/gpu=2", "gpu:a100:1,gpu:h100:1"}) {
    EXPECT_EQ(num_gpus_asked_in(text), 2) << text;
  }
  EXPECT_EQ(num_gpus_asked_in("gres:gpu"), 1);
  EXPECT_EQ(num_gpus_asked_in("N/A"), 0);
  EXPECT_EQ(num_gpus_asked_in("gres/shard:4"), 0);
}

TEST(SlurmJob, HasItsTimes) {
  EXPECT_EQ(parse_elapsed("1-02:03:04"), Seconds(93'784));
  EXPECT_EQ(parse_elapsed("00:01.648"), Seconds(1));
  EXPECT_EQ(parse_elapsed("5:00"), Seconds(300));
  EXPECT_EQ(parse_elapsed("2-00"), Seconds(172'800) + Seconds(0));
  for (const auto* text : {"UNLIMITED", "INVALID", "", "Partition_Limit", "1:2:3:4", "-1:00"}) {
    EXPECT_EQ(parse_elapsed(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_time("1795449921"), at(1795449921));
  EXPECT_NE(parse_time("2026-11-23T16:05:21"), std::nullopt);
  for (const auto* text : {"N/A", "Unknown", "0", "NONE", "now"}) EXPECT_EQ(parse_time(text), std::nullopt) << text;
}

TEST(SlurmJob, IsNamedInTwoWays) {
  EXPECT_EQ(parse_job_name("123"), (JobName{123, {}}));
  EXPECT_EQ(parse_job_name("123_4"), (JobName{123, 4}));
  EXPECT_EQ(parse_job_name("123.batch"), (JobName{123, {}}));
  EXPECT_EQ(parse_job_name("123+1.0"), (JobName{123, {}, 1}));
  EXPECT_EQ(to_text(JobName{123, {}, 1}), "123+1");
  for (const auto* text : {"", "0", "x", "123_", "123_[4-5]", "-5", "123+", "123+x", "123_4+1"})
    EXPECT_EQ(parse_job_name(text), std::nullopt) << text;
}

TEST(SlurmJob, IsFoundInTheNameOfItsOutput) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"slurm-123.out", "123"},
      {"logs/slurm-123_4.out", "123_4"},
      {"train_123.log", "123"},
      {"train-v2-123.err", "123"},
      {"123.out", "123"},
      {"lr0.1-123_17.txt", "123_17"},
      {"run_7_123_4.out", "123_4"},
      {"job123", ""},
      {"out.txt", ""},
      {"o-1-n1.out", "1"},
  };
  for (const auto& [file, job] : cases) {
    const auto found = job_of_file(file);
    EXPECT_EQ(found ? to_text(*found) : "", job) << file;
  }
}

TEST(SlurmJob, HasTasks) {
  EXPECT_THAT(array_tasks_of({.array_task = "7"}), testing::ElementsAre(7));
  EXPECT_THAT(array_tasks_of({.array_task = "1,4-6%2"}), testing::ElementsAre(1, 4, 5, 6));
  EXPECT_THAT(array_tasks_of({.array_task = "1-6:2,9%4"}), testing::ElementsAre(1, 3, 5, 9));
  for (const auto* text : {"", "1,3,...", "x", "0-99999999999", "0-4:0", "0-4:", "0-4:x"}) {
    EXPECT_THAT(array_tasks_of({.array_task = text}), IsEmpty()) << text;
  }
  for (const auto* text : {"", "7", "1,2", "0-3,5,7,8,10-12"}) {
    EXPECT_EQ(to_task_list(array_tasks_of({.array_task = text})), text);
  }
  EXPECT_EQ(short_id({.id = "120_[4-9%2]"}), "120_[4-9%2]");
  EXPECT_EQ(short_id({.id = "120_[0,2,4,6,8,10,12,14,16,18,20,22,24]"}), "120_[0,2,4,6,8,10,12,14,16,18,20,...]");
}

TEST(SlurmJob, HasFilesWithPatterns) {
  const Job job{.id = "2_7",
                .number = 31,
                .array = 2,
                .array_task = "7",
                .name = "sweep",
                .user = "ada",
                .node_list = "n[3-4]",
                .folder = "/w"};
  EXPECT_EQ(expand_path("slurm-%A_%a.out", job), "/w/slurm-2_7.out");
  EXPECT_EQ(expand_path("/o/%x-%6j-%3a.%u.%N", job), "/o/sweep-000031-007.ada.n3");
  EXPECT_EQ(expand_path("%%x %q %", job), "/w/%x %q %");
  EXPECT_EQ(expand_path("%J", job), "/w/31.batch");
  EXPECT_EQ(expand_path("", job), "");
  EXPECT_EQ(expand_path("%A_%a-%N.out", {.number = 2, .array = 2, .folder = "/w"}), "/w/2_%a-%N.out");
}

TEST(SlurmJob, HasReasonsInWords) {
  EXPECT_THAT(std::string(explain_reason("PartitionTimeLimit").meaning), testing::HasSubstr("never starts"));
  EXPECT_THAT(std::string(explain_reason("ReqNodeNotAvail, UnavailableNodes:n2").meaning),
              testing::HasSubstr("drained"));
  EXPECT_THAT(std::string(explain_reason("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher "
                                         "priority partitions")
                              .next),
              testing::HasSubstr("sinfo -R"));
  EXPECT_THAT(std::string(explain_reason("AssocGrpGRESMinutes").meaning), testing::HasSubstr("budget of hours"));
  EXPECT_THAT(std::string(explain_reason("AssocGrpCPURunMinutesLimit").meaning),
              testing::HasSubstr("limit of the site"));
  EXPECT_THAT(std::string(explain_reason("launch_failed_requeued_held").meaning), testing::HasSubstr("holds it"));
  EXPECT_THAT(std::string(explain_reason("QOSMaxGRESPerUser").meaning), testing::HasSubstr("QOS"));
  EXPECT_EQ(explain_reason("SomethingNew").meaning, "");
  const auto waiting = [](const char* reason) { return state_text({.id = "7", .state = "PENDING", .reason = reason}); };
  EXPECT_EQ(waiting("JobHeldUser"),
            "job 7 is PENDING: its user holds it (JobHeldUser); `scontrol release 7` lets it start");
  EXPECT_EQ(waiting("Licenses"), "job 7 is PENDING: it waits for a licence (Licenses)");
  EXPECT_EQ(waiting("SomethingNew"), "job 7 is PENDING (SomethingNew)");
  EXPECT_EQ(waiting(""), "job 7 is PENDING");
  EXPECT_EQ(state_text({.id = "7", .state = "RUNNING", .reason = "None"}), "job 7 is RUNNING");
  for (const auto* reason : {"DependencyNeverSatisfied", "BadConstraints"}) EXPECT_TRUE(never_starts(reason)) << reason;
  for (const auto* reason : {"Dependency", "JobHeldUser", ""}) EXPECT_FALSE(never_starts(reason)) << reason;
}

}  // namespace
}  // namespace yoke::slurm
