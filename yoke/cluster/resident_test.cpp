// Tests resident.h. Programs with fixed answers stand in for Slurm's and for `yoke agent`.
#include "yoke/cluster/resident.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/support/fake_slurm.h"
#include "tests/support/forked_process.h"
#include "tests/support/message_of.h"
#include "yoke/base/file.h"
#include "yoke/cluster/reach.h"

namespace yoke::cluster {
namespace {

using test::message_of;
using test::read_to_end;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Resident, SaysWhereItListens) {
  const AllocationNode node{"n1", "n1", 4711, 2, 8};
  EXPECT_EQ(parse_announcement(announce(node)), node);
  for (const auto* line : {"", "hello", "yoke-resident n1 0 2 8", "yoke-resident n1 70000 2 8", "yoke-resident n1 1 2",
                           "yoke-resident n1 1 x 8"}) {
    EXPECT_FALSE(parse_announcement(line)) << line;
  }
}

TEST(Resident, CountsTheGpusThatSlurmGave) {
  EXPECT_EQ(gpus_by_slurm({{"SLURM_GPUS_ON_NODE", "4"}}), 4);
  EXPECT_EQ(gpus_by_slurm({{"SLURM_STEP_GPUS", "0,2"}}), 2);
  EXPECT_EQ(gpus_by_slurm({}), 0);
}

TEST(Resident, IsStartedByTheKeeperAlone) {
  for (const Environment& environment :
       {Environment{}, Environment{{"YOKE_ALLOC_SECRET", "s"}}, Environment{{"SLURM_JOB_ID", "12"}}}) {
    EXPECT_THAT(message_of([&] { serve_resident(environment, "yoke"); }, ErrorCode::kFailedPrecondition),
                HasSubstr("use `yoke alloc`"));
  }
}

class ServedResident : public testing::Test {
 protected:
  /// Starts a resident agent, and a program that says what it got as `yoke agent`.
  ServedResident() {
    folder_.write("yoke", "#!/bin/sh\necho \"$* ${YOKE_NODE_ADDRESS:-none} ${YOKE_ALLOC_SECRET:-none}\"\n", true);
    auto out = make_pipe();
    resident_.emplace([&] {
      dup2(out.write_end.value(), STDOUT_FILENO);
      return serve_resident({{"PATH", "/usr/bin:/bin"},
                             {"YOKE_ALLOC_SECRET", allocation_.secret},
                             {"SLURM_JOB_ID", allocation_.job},
                             {"SLURMD_NODENAME", "n1"},
                             {"SLURM_GPUS_ON_NODE", "2"},
                             {"SLURM_CPUS_ON_NODE", "8"}},
                            folder_.path("yoke"));
    });
    out.write_end.reset();
    char line[256];
    const auto count = read(out.read_end.value(), line, sizeof line);
    const auto node = parse_announcement(std::string_view(line, count > 0 ? static_cast<size_t>(count) : 0));
    EXPECT_TRUE(node) << "it ended before it said where it listens";
    if (node) allocation_.nodes = {*node};
    if (node) allocation_.nodes[0].address = "127.0.0.1";
  }

  test::TemporaryFolder folder_;
  Allocation allocation_{.job = "12", .name = "", .secret = "0123", .yoke = "yoke", .nodes = {}};
  std::optional<test::ForkedProcess> resident_;
};

TEST_F(ServedResident, StartsAnAgentForItsOwnerAlone) {
  ASSERT_EQ(allocation_.nodes.size(), 1U);
  EXPECT_EQ(allocation_.nodes[0].name, "n1");
  EXPECT_EQ(allocation_.nodes[0].num_gpus, 2);
  EXPECT_EQ(allocation_.nodes[0].num_cpus, 8);
  auto stranger = allocation_, of_another_job = allocation_;
  stranger.secret = "3210";
  of_another_job.job = "13";
  for (const auto& one : {stranger, of_another_job}) {
    const auto reached = std::move(reach(one, one.nodes).front());
    EXPECT_EQ(reached.kind, Reached::Kind::kRefused);
    EXPECT_EQ(reached.why, "what listens there does not know the secret of the allocation");
    EXPECT_FALSE(reached.socket);
  }
  const auto reached = reach(allocation_, {allocation_.nodes[0], allocation_.nodes[0]});
  for (const auto& one : reached) {
    ASSERT_EQ(one.kind, Reached::Kind::kConnected) << one.why;
    EXPECT_EQ(read_to_end(one.socket.value()), "agent n1 none\n");
  }
}

TEST_F(ServedResident, IsReachedAgainWhenAnAgentIsNeededAgain) {
  ASSERT_EQ(allocation_.nodes.size(), 1U);
  OpenAllocation open{.allocation = allocation_, .transport = Transport::kResident};
  open.reached.push_back({.kind = Reached::Kind::kUnreachable, .socket = {}, .why = "it was down"});
  const auto host = open.take_hosts({"n1"}).front();
  EXPECT_EQ(message_of([&] { host.start_agent(); }, ErrorCode::kUnavailable),
            "node n1 of allocation 12 cannot be reached: it was down");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(read_to_end(host.start_agent().out.value()), "agent n1 none\n");
  resident_.reset();
  EXPECT_EQ(message_of([&] { host.start_agent(); }, ErrorCode::kUnavailable),
            "node n1 of allocation 12 cannot be reached: Connection refused");
}

class Keeper : public testing::Test {
 protected:
  Keeper() {
    slurm_.make("scontrol",
                "case \"$*\" in\n*'show node'*)\n  echo 'NodeName=n1 NodeAddr=10.0.0.1 State=ALLOCATED'\n"
                "  echo 'NodeName=n2 NodeAddr=10.0.0.2 State=ALLOCATED';;\n*) cat job;;\nesac");
    slurm_.write("job", test::scontrol_job("JobId=7", "RUNNING", "   EndTime=4000000000\n   NodeList=n[1-2]\n"));
    environment_ = slurm_.environment();
    for (const auto& [name, value] : {std::pair("SLURM_JOB_ID", "7"), std::pair("SLURM_JOB_NODELIST", "n[1-2]"),
                                      std::pair("SLURM_JOB_NAME", "yoke-alloc"), std::pair("SLURM_NTASKS", "2"),
                                      std::pair("SLURM_CLUSTER_NAME", "here")}) {
      environment_.set(name, value);
    }
    file_ = new_allocation_file(environment_);
    environment_.set("YOKE_ALLOC_FILE", file_.string());
  }

  test::FakeSlurm slurm_;
  Environment environment_;
  std::filesystem::path file_;
};

TEST_F(Keeper, IsStartedAsABatchJobAlone) {
  for (const auto* name : {"YOKE_ALLOC_FILE", "SLURM_JOB_ID", "SLURM_JOB_NODELIST"}) {
    auto environment = environment_;
    environment.erase(name);
    EXPECT_THAT(message_of([&] { keep_allocation(environment, "yoke"); }, ErrorCode::kFailedPrecondition),
                StartsWith("a keeper is started by `yoke alloc`"));
  }
  environment_.set("YOKE_ALLOC_FILE", "file.json");
  EXPECT_THROW(keep_allocation(environment_, "yoke"), Error);
  EXPECT_TRUE(std::filesystem::is_empty(file_.parent_path())) << "not even a log";
}

TEST_F(Keeper, TellsTheNodesInSlurmsOrderAndRemovesAllAtTheEnd) {
  slurm_.make("srun",
              "env >srun.env\necho 'yoke-resident n2 5002 1 8'\necho 'Welcome to n9'\n"
              "echo 'yoke-resident n9 5009 1 8'\nprintf 'yoke-resident n1 50'\necho '01 2 8'\nexec sleep 1000");
  test::ForkedProcess keeper([&] { return keep_allocation(environment_, "/opt/yoke"); });
  ASSERT_TRUE(test::wait_until([&] { return std::filesystem::exists(file_); })) << test::slurp(log_file(file_));
  const auto held = read_allocation(file_);
  ASSERT_TRUE(held);
  EXPECT_THAT(held->nodes, testing::ElementsAre(AllocationNode{"n1", "10.0.0.1", 5001, 2, 8},
                                                AllocationNode{"n2", "10.0.0.2", 5002, 1, 8}));
  EXPECT_EQ(held->job, "7");
  EXPECT_EQ(held->name, "") << "the user gave none";
  EXPECT_EQ(held->cluster, "here");
  EXPECT_EQ(held->yoke, "/opt/yoke");
  EXPECT_EQ(held->until, 4'000'000'000);
  EXPECT_EQ(held->secret.size(), 64U);
  const auto variables = test::slurp(slurm_.path("srun.env"));
  EXPECT_THAT(variables, AllOf(HasSubstr("YOKE_ALLOC_SECRET=" + held->secret + "\n"), Not(HasSubstr("SLURM_NTASKS")),
                               Not(HasSubstr("YOKE_ALLOC_FILE"))));
  ASSERT_EQ(slurm_.calls("srun").size(), 1U);
  EXPECT_THAT(slurm_.calls("srun")[0], AllOf(HasSubstr("--jobid=7 --overlap --nodes=2 --ntasks=2"),
                                             HasSubstr("/opt/yoke agent --resident"), Not(HasSubstr(held->secret))));

  keeper.signal(SIGTERM);
  EXPECT_EQ(keeper.wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(file_));
  const auto log = kept_log("7", environment_);
  ASSERT_TRUE(log);
  EXPECT_EQ(log->filename(), "7.here.log");
  EXPECT_THAT(test::slurp(log->string()), HasSubstr("yoke alloc: a resident agent of an unknown node: n9\n"));
}

}  // namespace
}  // namespace yoke::cluster
