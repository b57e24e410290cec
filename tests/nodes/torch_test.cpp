// Tests C++ ranks on four hosts with a TCPStore in a separate process.
#include <csignal>
#include <cstdlib>
#include <optional>
#include <set>

#include "tests/nodes/nodes.h"
#include "yoke/base/file.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TorchNodes : public Nodes {
 protected:
  std::vector<std::unique_ptr<Command>> join_all(const std::vector<std::string>& words) {
    std::vector<std::unique_ptr<Command>> nodes;
    for (int host = 0; host < kNumHosts; ++host) nodes.push_back(join(host, words));
    return nodes;
  }

  /// As where the launcher does not see that a network is cut: its heartbeats may be silent for longer than the
  /// connections of ranks. `timeout`: of the ranks' collectives.
  void cut_off_a_rank(const std::string& timeout) {
    const auto nodes = join_all({"--heartbeat-timeout", "600", "--", YOKE_RANK_PROGRAM, "churn", timeout});
    for (const auto& node : nodes) {
      ASSERT_TRUE(node->wait_until([&] { return node->out().find("churning") != std::string::npos; }, kLong));
    }
    network_->cut(3);
    const auto says = [&](int host, const std::string& text) {
      auto& node = *nodes[static_cast<size_t>(host)];
      return node.wait_until([&] { return node.err().find(text) != std::string::npos; }, kLong);
    };
    EXPECT_TRUE(says(0, " to another rank: the connection ") && says(0, " to rank 3 on ")) << nodes[0]->err();
    EXPECT_TRUE(says(3, " gives no answer: the network between the hosts is cut, or that host is down; rank "))
        << nodes[3]->err();
    network_->mend(3);
    EXPECT_EQ(nodes[0]->wait(kLong).exit_code, 75);
    EXPECT_THAT(nodes[0]->err(), Not(HasSubstr("has ended")));
  }
};

TEST_F(TorchNodes, RanksOfFourHostsMeet) {
  const auto nodes = join_all(
      {"-n", "2", "--", "sh", "-c", "echo store $TORCHELASTIC_USE_AGENT_STORE; exec " YOKE_RANK_PROGRAM " sum"});
  for (int host = 0; host < kNumHosts; ++host) {
    const auto result = nodes[static_cast<size_t>(host)]->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out,
                AllOf(HasSubstr(fmt("rank %d of 8 local 0 sum 36\n", 2 * host)),
                      HasSubstr(fmt("rank %d of 8 local 1 sum 36\n", 2 * host + 1)), HasSubstr("store True\n")));
  }
}

TEST_F(TorchNodes, OverSshTheyDoToo) {
  if (const auto why = Network::why_no_sshd(); !why.empty()) GTEST_SKIP() << why;
  network_->start_sshd(tag_);
  const auto result = over_ssh({"--", YOKE_RANK_PROGRAM, "sum"})->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (int rank = 0; rank < kNumHosts; ++rank) {
    EXPECT_THAT(result.out, HasSubstr(fmt("rank %d of 4 local 0 sum 10\n", rank)));
  }
}

/// After rank 0 has failed, the store still serves the other ranks. Otherwise their errors about lost connections would
/// hide the failure of rank 0.
TEST_F(TorchNodes, ARestartMeetsAtAnotherStore) {
  const auto nodes = join_all(
      {"--max-restarts", "1", "--", "sh", "-c",
       "echo port $MASTER_PORT; [ $RANK$TORCHELASTIC_RESTART_COUNT = 00 ] && exit 9; exec " YOKE_RANK_PROGRAM " sum"});
  std::set<std::string> ports;
  for (const auto& node : nodes) {
    const auto result = node->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(" of 4 local 0 sum 10\n"));
    for (auto at = result.out.find("port "); at != result.out.npos; at = result.out.find("port ", at + 1)) {
      ports.insert(result.out.substr(at, result.out.find('\n', at) - at));
    }
  }
  EXPECT_EQ(ports.size(), 2U);
}

TEST_F(TorchNodes, AKilledStoreEndsTheJobAndIsNamed) {
  const auto nodes = join_all(shell({}, script()));
  ASSERT_TRUE(wait_until([&] { return runs(0, 4); }));
  std::optional<pid_t> store;
  const auto find_store = [&] {  // repeated: the ranks may start before the store
    for (const auto pid : processes_with_tag(tag_)) {
      if (slurp("/proc/" + std::to_string(pid) + "/comm") == "yoke-store\n") store = pid;
    }
    return store.has_value();
  };
  ASSERT_TRUE(wait_until(find_store));
  kill(*store, SIGKILL);
  for (const auto& node : nodes) EXPECT_EQ(node->wait().exit_code, 75);
  EXPECT_THAT(nodes[1]->err(), HasSubstr("the process that serves the ranks' TCPStore (pid "));
}

/// The store must outlive the ranks of its own node, and ignore signals that are meant for ranks.
TEST_F(TorchNodes, TheStoreServesUntilTheLastRankOfAllHasEnded) {
  const auto nodes =
      join_all(shell({}, "trap '' USR1; cd " + folder_.path() +
                             "; until_there() { while [ ! -e $1 ]; do sleep 0.05; done; }; echo $$ > pid.$RANK; "
                             ": > 0.$RANK.4; [ $RANK != 0 ] || { until_there first; exit 0; }; until_there done"));
  ASSERT_TRUE(wait_until([&] { return runs(0, 4); }));
  const auto store = [&] {
    for (const auto pid : processes_with_tag(tag_)) {
      if (slurp("/proc/" + std::to_string(pid) + "/comm") == "yoke-store\n") return true;
    }
    return false;
  };
  ASSERT_TRUE(wait_until(store));
  nodes[0]->signal(SIGUSR1);
  make_file("first");
  const auto first = static_cast<pid_t>(std::stoi(read_file(folder_.path("pid.0"))));
  ASSERT_TRUE(wait_until([&] { return kill(first, 0) != 0; }));   // the rank has ended, and its node has noticed
  nodes[0]->wait_until([] { return false; }, milliseconds(500));  // clock: a wait that is too short finds less
  EXPECT_TRUE(store());
  make_file("done");
  for (const auto& node : nodes) EXPECT_EQ(node->wait().exit_code, 0) << node->err();
}

TEST_F(TorchNodes, ACutNetworkIsNotTheEndOfARank) {
  if (std::getenv("YOKE_LONG") == nullptr) return;
  cut_off_a_rank("600000");  // its connections are for a minute
}

TEST_F(TorchNodes, ACutNetworkIsNoLateRankIfTheTimeoutIsShort) { cut_off_a_rank("10000"); }

/// The launchers and the store have their ports, but the ranks of host 1 cannot be reached and reach nobody.
TEST_F(TorchNodes, AFirewallBetweenTheRanksIsNamed) {
  const auto drop = [&](const char* chain, const char* ports) {
    const auto dropped = run({.argv = network_->on(1, {"iptables", "-A", chain, "-p", "tcp", "-m", "multiport", "!",
                                                       ports, "29400,29401", "-j", "DROP"})});
    ASSERT_EQ(dropped.exit_code, 0) << dropped.err;
  };
  drop("OUTPUT", "--dports");
  drop("INPUT", "--sports");
  const auto nodes = join_all({"--master-port", "29401", "--", YOKE_RANK_PROGRAM, "churn", "5000"});
  const auto result = nodes[0]->wait(kLong);
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, testing::ContainsRegex(
                              "a group over several hosts uses Gloo .docs/dist.md.: on .*, of rank [0-3]: rank "
                              "[0-3] at 10.77.0.[1-4] gives no answer, as behind a firewall that drops packets"));
  EXPECT_THAT(result.err,
              testing::ContainsRegex("rank 0: cannot connect to the other ranks: on .*, of rank [0-3]: rank "
                                     "[0-3] at .* gives no answer, as behind a firewall"));
}

/// C++ and Python ranks must form one group.
TEST_F(TorchNodes, PythonRanksJoinThem) {
  const char* torchrun = std::getenv("YOKE_PEER_TORCHRUN");
  if (torchrun == nullptr) GTEST_SKIP() << "YOKE_PEER_TORCHRUN does not name the torchrun of a Python with torch";
  const auto python = std::filesystem::path(torchrun).parent_path() / "python";
  const auto nodes = join_all({"--", "sh", "-c",
                               // Gloo's default, the address of this host's name, is outside of this network.
                               "[ $((RANK % 2)) = 0 ] || GLOO_SOCKET_IFNAME=eth0 exec " + python.string() +
                                   " " YOKE_PYTHON_RANK "; exec " YOKE_RANK_PROGRAM " sum"});
  for (int host = 0; host < kNumHosts; ++host) {
    const auto result = nodes[static_cast<size_t>(host)]->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(host % 2 == 0 ? fmt("rank %d of 4 local 0 sum 10\n", host)
                                                    : fmt("Python rank %d of 4 sum 10\n", host)));
  }
}

}  // namespace
}  // namespace yoke::test
