#include "yoke/launch/torchrun/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class RunLaunch : public testing::Test {
 protected:
  Launch launch() { return to_launch(options_, surroundings_); }
  NodesSpec nodes() { return launch().nodes; }

  std::string refusal() {
    return test::message_of([&] { nodes(); });
  }

  void set(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const auto& [name, value] : variables) surroundings_.environment.set(name, value);
  }

  RunOptions options_{.is_nproc_given = true};
  Surroundings surroundings_{
      .program = {"x"},
      .environment = {},
      .list_hosts =
          [] {
            return ListedHosts{.hosts = {{.name = "a"}, {.name = "b", .num_ranks = 2}}, .allocation = "4711"};
          },
      .job_token = [] { return std::string("a secret of this test"); }};
};

TEST_F(RunLaunch, OneIsTheDefaultAndItsEndpointIsTheStores) {
  EXPECT_FALSE(nodes().is_several());
  options_.rdzv_endpoint = "localhost:1234";
  options_.nnodes = "1";
  EXPECT_FALSE(nodes().is_several());
  EXPECT_EQ(launch().spec.master_addr, "localhost");
  EXPECT_EQ(launch().spec.master_port, 1234);
}

TEST_F(RunLaunch, AJobOfOneNodeHasAnIdOfItsOwn) {
  const auto id = launch().spec.run_id;
  EXPECT_TRUE(launch().spec.has_random_id);
  EXPECT_NE(launch().spec.run_id, id);
  const auto expect_id = [this](const char* expected) {
    EXPECT_EQ(launch().spec.run_id, expected);
    EXPECT_FALSE(launch().spec.has_random_id);
    options_ = {.is_nproc_given = true};
  };
  options_.rdzv_id = "j";
  expect_id("j");
  options_.master_port = 1234;
  expect_id("none");
  options_.rdzv_endpoint = "localhost:1234";
  expect_id("none");
  options_.rdzv_backend = "c10d";
  expect_id("none");
  options_.hosts = "a,b";
  expect_id("none");
  options_.nnodes = "1:2";
  options_.rdzv_endpoint = "head";
  expect_id("none");
}

TEST_F(RunLaunch, TheEndpointIsUsedAsItIsGiven) {
  options_.nnodes = "2";
  const std::tuple<const char*, const char*, int> cases[] = {
      {"head", "head", 29400},         {"head:77", "head", 77},         {"10.0.0.1:77", "10.0.0.1", 77},
      {"[fe80::1]:77", "fe80::1", 77}, {"[fe80::1]", "fe80::1", 29400}, {"fe80::1", "fe80::1", 29400}};
  for (const auto& [text, host, port] : cases) {
    options_.rdzv_endpoint = text;
    EXPECT_EQ(nodes().endpoint_host, host) << text;
    EXPECT_EQ(nodes().endpoint_port, port) << text;
  }
  for (const char* text : {":77", "head:port", "head:70000", "head:-1"}) {
    options_.rdzv_endpoint = text;
    EXPECT_NE(refusal(), "(nothing thrown)") << text;
  }
}

TEST_F(RunLaunch, TheStaticRendezvousOfTorchrunIsOne) {
  options_.nnodes = "2";
  options_.node_rank = 1;
  EXPECT_THAT(refusal(), HasSubstr("the other nodes need an address of the first node"));
  options_.master_addr = "head";
  auto result = nodes();
  EXPECT_EQ(result.endpoint_host, "head");
  EXPECT_EQ(result.endpoint_port, 29500);
  EXPECT_EQ(result.is_head, false);
  EXPECT_EQ(result.node_rank, 1);
  options_.master_port = 1234;
  EXPECT_EQ(nodes().endpoint_port, 1234);
  EXPECT_FALSE(launch().spec.master_port) << "the nodes meet there, so the store is elsewhere";
}

TEST_F(RunLaunch, ConfigurationOfTheRendezvous) {
  options_.nnodes = "2:4";
  options_.rdzv_endpoint = "head";
  options_.rdzv_conf = "join_timeout=60,last_call_timeout=0.5,is_host=1,read_timeout=7";
  const auto result = nodes();
  EXPECT_EQ(result.membership.min_nodes, 2);
  EXPECT_EQ(result.membership.max_nodes, 4);
  EXPECT_TRUE(result.is_elastic());
  EXPECT_EQ(result.membership.join_timeout, seconds(60));
  EXPECT_EQ(result.membership.last_call, std::chrono::milliseconds(500));
  EXPECT_EQ(result.is_head, true);
  options_.rdzv_conf = "join_timeout=soon";
  EXPECT_THAT(refusal(), HasSubstr("join_timeout=soon"));
}

TEST_F(RunLaunch, NumbersThatMakeNoSenseAreRefused) {
  options_.rdzv_endpoint = "head";
  for (const char* text : {"0", "3:2", "two", "1:", ":2", "-1"}) {
    options_.nnodes = text;
    EXPECT_NE(refusal(), "(nothing thrown)") << text;
  }
  options_.nnodes = "2";
  options_.node_rank = 2;
  EXPECT_THAT(refusal(), HasSubstr("--node-rank 2: nodes are numbered from 0, and the job has 2"));
  options_.node_rank.reset();
  options_.standalone = true;
  EXPECT_THAT(refusal(), HasSubstr("--standalone"));
  options_.nnodes = "1";
  options_.standalone = false;
  options_.node_rank = 1;
  EXPECT_THAT(refusal(), HasSubstr("the job has one node"));
}

TEST_F(RunLaunch, SrunSaysAll) {
  set({{"SLURM_STEP_NUM_TASKS", "4"},
       {"SLURM_STEP_NUM_NODES", "4"},
       {"SLURM_STEP_TASKS_PER_NODE", "1(x4)"},
       {"SLURM_STEP_NODELIST", "n[05-08]"},
       {"SLURM_PROCID", "2"},
       {"SLURM_LOCALID", "0"},
       {"SLURM_NODEID", "2"},
       {"SLURM_JOB_ID", "77"},
       {"SLURM_STEP_ID", "3"}});
  const auto result = nodes();
  EXPECT_EQ(result.membership.min_nodes, 4);
  EXPECT_EQ(result.membership.max_nodes, 4);
  EXPECT_EQ(result.node_rank, 2);
  EXPECT_EQ(result.is_head, false);
  EXPECT_EQ(result.endpoint_host, "n05");
  EXPECT_NE(result.endpoint_port, 0);
  EXPECT_EQ(launch().spec.run_id, "77.3");
  options_.standalone = true;
  EXPECT_FALSE(nodes().is_several());
}

TEST_F(RunLaunch, AStepOfOneTaskIsOneNode) {
  set({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
  EXPECT_FALSE(nodes().is_several());
}

TEST_F(RunLaunch, StartedSeveralTimesOnANodeIsRefused) {
  set({{"SLURM_STEP_NUM_TASKS", "4"},
       {"SLURM_STEP_NUM_NODES", "2"},
       {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
       {"SLURM_STEP_NODELIST", "n[05-06]"},
       {"SLURM_PROCID", "2"},
       {"SLURM_LOCALID", "0"},
       {"SLURM_NODEID", "1"}});
  EXPECT_THAT(refusal(), HasSubstr("yoke run was started 2 times on this node, and one launcher"));
}

TEST_F(RunLaunch, AnotherNodeWithSeveralLaunchersIsNotWaitedFor) {
  set({{"SLURM_STEP_NUM_TASKS", "4"},
       {"SLURM_STEP_NUM_NODES", "2"},
       {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
       {"SLURM_STEP_NODELIST", "n[05-06]"},
       {"SLURM_PROCID", "3"},
       {"SLURM_LOCALID", "0"},
       {"SLURM_NODEID", "1"}});
  EXPECT_THAT(refusal(), HasSubstr("yoke run was started 4 times on the 2 nodes"));
}

TEST_F(RunLaunch, MpirunSaysAllButTheAddress) {
  set({{"OMPI_COMM_WORLD_SIZE", "2"},
       {"OMPI_COMM_WORLD_RANK", "0"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
       {"PMIX_NAMESPACE", "prterun-1"}});
  EXPECT_THAT(refusal(), HasSubstr("MASTER_ADDR is not set"));
  set({{"MASTER_ADDR", "head"}, {"RANK", "9"}, {"WORLD_SIZE", "10"}});  // an outer launcher has set RANK and WORLD_SIZE
  const auto result = nodes();
  EXPECT_EQ(result.is_head, true);
  EXPECT_EQ(result.membership.max_nodes, 2);
  EXPECT_EQ(result.endpoint_host, "head");
}

TEST_F(RunLaunch, HostsAreReachedAndNotWaitedFor) {
  options_.hosts = "a,b:2";
  auto result = nodes();
  ASSERT_EQ(result.hosts.size(), 2U);
  EXPECT_EQ(result.allocation, "4711");
  EXPECT_EQ(result.hosts[1].num_ranks, 2);
  EXPECT_EQ(result.membership.min_nodes, 2);
  EXPECT_TRUE(result.token.empty());
  options_.nnodes = "1:2";
  EXPECT_TRUE(nodes().is_elastic());
  options_.nnodes = "1:3";
  EXPECT_THAT(refusal(), HasSubstr("more nodes than the 2 hosts that are listed"));
  options_.nnodes = "1";  // if this were allowed, only the first node that joins would take part
  EXPECT_THAT(refusal(), HasSubstr("fewer nodes than the 2 hosts that are listed"));
  options_.nnodes = "";
  options_.node_rank = 0;
  EXPECT_THAT(refusal(), HasSubstr("--hosts and --in start the nodes themselves"));
}

TEST_F(RunLaunch, SparesAreTheLastHosts) {
  options_.spares = 1;
  options_.max_restarts = "2";
  EXPECT_THAT(refusal(), HasSubstr("--spares 1: the job has 1 host, and one of them at least must have ranks"));
  options_.hosts = "a,b";
  EXPECT_EQ(nodes().membership.max_nodes, 1);
  EXPECT_EQ(nodes().membership.num_spares, 1);
  options_.nnodes = "2";
  EXPECT_THAT(refusal(), HasSubstr("more nodes than the 1 hosts that are listed besides the spares"));
  options_.nnodes = "1";
  EXPECT_EQ(nodes().membership.max_nodes, 1);
  options_.max_restarts = "0";
  EXPECT_THAT(refusal(), HasSubstr("give --max-restarts or --replace, too"));
  options_.replace = 1;
  EXPECT_THAT(refusal(), HasSubstr("the spare host b has 2 ranks (-n), and a spare takes the place of a host with as "
                                   "many: the job's hosts have 1 each"));
  options_.nproc_per_node = "2";
  EXPECT_EQ(nodes().membership.num_spares, 1);
  options_.nproc_per_node = "gpu";
  EXPECT_EQ(nodes().membership.num_spares, 1) << "only the host a knows";
  options_ = {.max_restarts = "2", .spares = 1, .nnodes = "1", .node_rank = 1, .rdzv_endpoint = "a:1234"};
  EXPECT_TRUE(nodes().is_several());
  options_.node_rank = 2;
  EXPECT_THAT(refusal(), HasSubstr("nodes are numbered from 0, and the job has 2"));
  options_.nnodes = "1:2";
  EXPECT_THAT(refusal(), HasSubstr("an elastic job (--nnodes MIN:MAX) needs no spares"));
}

TEST_F(RunLaunch, ASpareOfSrunIsItsLastNode) {
  options_.spares = 1;
  options_.max_restarts = "2";
  set({{"SLURM_JOB_ID", "77"},
       {"SLURM_STEP_NUM_TASKS", "3"},
       {"SLURM_NTASKS", "3"},
       {"SLURM_NNODES", "3"},
       {"SLURM_STEP_NUM_NODES", "3"},
       {"SLURM_PROCID", "2"},
       {"SLURM_NODEID", "2"},
       {"SLURM_LOCALID", "0"},
       {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
       {"SLURM_STEP_NODELIST", "n[1-3]"}});
  EXPECT_EQ(nodes().membership.max_nodes, 2);
  EXPECT_EQ(nodes().node_rank, 2);
}

TEST_F(RunLaunch, RanksOfSeveralHostsAreReplacedAsThoseOfOne) {
  options_.replace = 4;
  EXPECT_EQ(launch().spec.no_replacement, "the job has one rank, whose state no other rank has");
  options_.hosts = "a,b";
  EXPECT_EQ(launch().spec.replacements, 4);
  surroundings_.is_agent = true;  // which does not know how many hosts there are
  EXPECT_EQ(launch().spec.replacements, 4);
  set({{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}});
  EXPECT_EQ(launch().spec.replacements, 0);
}

TEST_F(RunLaunch, ARendezvousAtAnotherServerIsRefused) {
  for (const char* name : {"etcd", "etcd-v2", "mine"}) {
    options_.rdzv_backend = name;
    EXPECT_THAT(refusal(), HasSubstr("meet at the first node and not at another server")) << name;
  }
  options_.standalone = true;
  EXPECT_EQ(refusal(), "(nothing thrown)") << "torchrun ignores it, too";
}

}  // namespace
}  // namespace yoke::launch
