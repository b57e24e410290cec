// Tests `yoke run --nnodes`, started separately on each of four hosts in network namespaces.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <csignal>
#include <random>

#include "tests/nodes/nodes.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ByHand : public Nodes {
 protected:
  std::vector<std::unique_ptr<Command>> join_all(const std::vector<std::string>& words,
                                                 const std::string& nnodes = "4") {
    std::vector<std::unique_ptr<Command>> nodes;
    for (int host = 0; host < kNumHosts; ++host) nodes.push_back(join(host, words, nnodes));
    return nodes;
  }

  static std::string all_errors(const std::vector<std::unique_ptr<Command>>& nodes) {
    std::string text;
    for (const auto& node : nodes) text += node->err();
    return text;
  }

  /// Reads the output of all nodes until `condition` holds.
  static bool wait_for(const std::vector<std::unique_ptr<Command>>& nodes, const std::function<bool()>& condition) {
    return wait_until(
        [&] {
          for (const auto& node : nodes) node->wait_until([] { return false; }, milliseconds(1));
          return condition();
        },
        kLong);
  }
};

TEST_F(ByHand, NodeRanksAreHonouredWhoeverComesFirst) {
  std::vector<std::unique_ptr<Command>> nodes(kNumHosts);
  for (const int host : {3, 1, 2, 0}) {  // host 0, the head, starts last
    nodes[static_cast<size_t>(host)] =
        join(host, shell({"-n", std::to_string(host + 1)}, "echo $RANK/$WORLD_SIZE $GROUP_RANK $MASTER_ADDR"));
    // clock: the result is the same in any order
    if (host != 0) nodes[static_cast<size_t>(host)]->wait_until([] { return false; }, milliseconds(100));
  }
  int rank = 0;
  for (int host = 0; host < kNumHosts; ++host) {
    const auto result = nodes[static_cast<size_t>(host)]->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (int local_rank = 0; local_rank <= host; ++local_rank, ++rank) {
      EXPECT_THAT(result.out, HasSubstr(fmt("[%d] %d/10 %d 10.77.0.1\n", rank, rank, host)));
    }
  }
}

TEST_F(ByHand, ASpareTakesThePlaceOfALostNode) {
  const auto nodes = join_all(shell({"--spares", "1", "--max-restarts", "3"}, script()), "3");
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 3) && num_connections(3) == 1; })) << all_errors(nodes);
  nodes[1]->signal(SIGKILL);
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(1, 3); })) << all_errors(nodes);
  make_file("done");
  for (const int host : {0, 2, 3}) {
    EXPECT_EQ(nodes[static_cast<size_t>(host)]->wait().exit_code, 0) << all_errors(nodes);
  }
  EXPECT_THAT(nodes[0]->err(), HasSubstr("takes the place of node 1"));
}

TEST_F(ByHand, ASlowHeadIsWaitedFor) {
  auto node = join(1, {"--", "true"}, "2");
  ASSERT_TRUE(node->wait_until([&] { return node->err().find("waiting for the head node") != std::string::npos; }));
  const auto head = join(0, {"--", "true"}, "2");
  EXPECT_EQ(head->wait().exit_code, 0) << head->err();
  EXPECT_EQ(node->wait().exit_code, 0) << node->err();
}

TEST_F(ByHand, WithoutNodeRanksTheEndpointsHostIsTheHead) {
  std::vector<std::unique_ptr<Command>> nodes;
  for (const int host : {2, 0, 1}) {
    nodes.push_back(
        join(host, shell({"--rdzv-backend", "c10d", "--rdzv-id", "a job"}, "echo $RANK/$WORLD_SIZE"), "3", false));
  }
  std::string out;
  for (const auto& node : nodes) {
    EXPECT_EQ(node->wait().exit_code, 0) << node->err();
    out += node->out();
  }
  EXPECT_THAT(out, AllOf(HasSubstr("[0] 0/3\n"), HasSubstr("[1] 1/3\n"), HasSubstr("[2] 2/3\n")));
}

TEST_F(ByHand, AllHaveTheExitStatusOfTheFirstFailure) {
  const auto nodes = join_all(shell({}, "[ $RANK = 3 ] || exec sleep 60; exit 42"));
  for (const auto& node : nodes) {
    const auto result = node->wait();
    EXPECT_EQ(result.exit_code, 42);
    EXPECT_THAT(result.err, HasSubstr("exited with code 42; stopped the 3 other ranks"));
  }
}

/// A rank may be unable to write its error file, and its lines are on the screen of another node alone.
TEST_F(ByHand, TheHeadTellsTheLastLineOfARankOfAnotherNode) {
  const auto nodes = join_all(
      shell({}, "[ $RANK = 2 ] || exec sleep 1000; echo starting; echo 'the disk\033[31m is full' >&2; exit 3"));
  for (const auto& node : nodes) EXPECT_EQ(node->wait().exit_code, 3);
  EXPECT_THAT(nodes[0]->err(), HasSubstr("yoke run: the last lines of rank 2:\n  the disk?[31m is full\n"
                                         "yoke run: rank 2 (pid "));
  EXPECT_THAT(nodes[2]->err(), testing::Not(HasSubstr("the last lines"))) << "they are in sight";
}

TEST_F(ByHand, TooFewNodesAreNotWaitedForWithoutEnd) {
  const auto head = join(0, {"--rdzv-conf", "join_timeout=1", "--", "true"});
  const auto result = head->wait();
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_THAT(result.err, HasSubstr("1 of at least 4 nodes joined within 1.0 s"));
}

TEST_F(ByHand, AKilledNodeEndsTheJobOnAll) {
  const auto nodes = join_all(shell({}, script()));
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 4); })) << all_errors(nodes);
  nodes[2]->signal(SIGKILL);
  for (const int host : {0, 1, 3}) {
    EXPECT_EQ(nodes[static_cast<size_t>(host)]->wait().exit_code, 75) << host;
  }
  EXPECT_THAT(nodes[0]->err(), HasSubstr("its connection was closed"));
}

TEST_F(ByHand, AKilledHeadEndsTheJobOnAll) {
  const auto nodes = join_all(shell({"--max-restarts", "3"}, script()));
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 4); })) << all_errors(nodes);
  nodes[0]->signal(SIGKILL);
  for (const int host : {1, 2, 3}) {
    const auto result = nodes[static_cast<size_t>(host)]->wait();
    EXPECT_EQ(result.exit_code, 75) << host;
    EXPECT_THAT(result.err, HasSubstr("lost the head node: its connection was closed"));
  }
}

TEST_F(ByHand, AHeadKilledWithSomethingUnreadEndsTheJobToo) {
  const auto nodes = join_all(shell({}, script()));
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 4); })) << all_errors(nodes);
  nodes[0]->signal(SIGSTOP);
  // clock: a wait that is too short finds less
  nodes[0]->wait_until([] { return false; }, milliseconds(1500));  // nodes send heartbeats each second, unread
  nodes[0]->signal(SIGKILL);
  for (const int host : {1, 2, 3}) {
    const auto result = nodes[static_cast<size_t>(host)]->wait();
    EXPECT_EQ(result.exit_code, 75) << host;
    EXPECT_THAT(result.err, HasSubstr("lost the head node: its connection was closed"));
  }
}

TEST_F(ByHand, ACutNodeOfAnElasticJobComesBack) {
  const auto nodes = join_all(shell({"--heartbeat-timeout", kSilence, "--max-restarts", "100"}, script()), "2:4");
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 4); })) << all_errors(nodes);
  network_->cut(2);
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(1, 3); })) << all_errors(nodes);
  EXPECT_TRUE(wait_for(nodes, [&] { return nodes[2]->err().find("joining the job again") != std::string::npos; }));
  network_->mend(2);
  // A node that joins appears only at the next start, so the test waits for the node's connection.
  ASSERT_TRUE(wait_for(nodes, [&] { return num_connections(2) > 0; })) << all_errors(nodes);
  make_file("fail-1");
  ASSERT_TRUE(restart_until(*nodes[0], 2, 4)) << all_errors(nodes);
  make_file("done");
  for (const auto& node : nodes) EXPECT_EQ(node->wait().exit_code, 0) << node->err();
}

TEST_F(ByHand, ANodeOfAnElasticJobMayLeave) {
  const auto nodes = join_all(shell({}, script()), "2:4");
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 4); })) << all_errors(nodes);
  nodes[3]->signal(SIGTERM);
  EXPECT_EQ(nodes[3]->wait().exit_code, 143) << nodes[3]->err();
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(1, 3); })) << all_errors(nodes);
  make_file("done");
  for (const int host : {0, 1, 2}) EXPECT_EQ(nodes[static_cast<size_t>(host)]->wait().exit_code, 0);
}

TEST_F(ByHand, AnElasticJobPrintsAlikeWhenOneRankIsLeft) {
  const auto words = shell({}, "echo of $WORLD_SIZE; " + script());
  std::vector<std::unique_ptr<Command>> nodes;
  for (const int host : {0, 1}) nodes.push_back(join(host, words, "1:2"));
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 2); })) << all_errors(nodes);
  nodes[1]->signal(SIGTERM);
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(1, 1); })) << all_errors(nodes);
  const auto logs = run(options(network_->on(0, {kYoke, "logs", std::to_string(nodes[0]->pid()), "--rank", "0"})));
  EXPECT_EQ(logs.out, "[0] of 2\n[0] of 1\n") << logs.err;
  EXPECT_EQ(logs.err, "");
  make_file("done");
  const auto result = nodes[0]->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "[0] of 2\n[0] of 1\n");
}

TEST_F(ByHand, ANodeThatLeavesIsNotHeardTwice) {
  const auto nodes = join_all(shell({}, "trap 'sleep 1; exit 0' TERM; " + script()), "2:4");
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 4); })) << all_errors(nodes);
  nodes[3]->signal(SIGTERM);
  nodes[3]->wait_until([] { return false; }, milliseconds(300));  // clock: any moment will do
  nodes[3]->signal(SIGTERM);
  EXPECT_EQ(nodes[3]->wait().exit_code, 143) << nodes[3]->err();
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(1, 3); })) << all_errors(nodes);
  make_file("done");
  for (const int host : {0, 1, 2}) EXPECT_EQ(nodes[static_cast<size_t>(host)]->wait().exit_code, 0);
}

TEST_F(ByHand, WhoeverIsOneTooManyMayGo) {
  std::vector<std::unique_ptr<Command>> nodes;
  for (const int host : {0, 1}) nodes.push_back(join(host, shell({}, script()), "2"));
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 2); })) << all_errors(nodes);
  const auto stray = join(2, {"--", "true"}, "2", false);
  ASSERT_TRUE(wait_for(nodes, [&] { return num_connections(2) > 0; }));
  stray->signal(SIGINT);
  EXPECT_EQ(stray->wait().exit_code, 130) << stray->err();
  make_file("done");
  for (const auto& node : nodes) EXPECT_EQ(node->wait().exit_code, 0) << node->err();
}

TEST_F(ByHand, AWaitingNodeWithoutItsGuardianIsMissedByNobody) {
  std::vector<std::unique_ptr<Command>> nodes;
  nodes.push_back(join(0, shell({"--rdzv-conf", "last_call_timeout=0"}, script()), "1:2"));
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 1); })) << all_errors(nodes);
  nodes.push_back(join(1, shell({}, script()), "1:2"));
  ASSERT_TRUE(wait_for(nodes, [&] { return num_connections(1) > 0 && guardian_of(nodes[1]->pid()); }));
  kill(*guardian_of(nodes[1]->pid()), SIGKILL);
  EXPECT_EQ(nodes[1]->wait().exit_code, 75);
  make_file("done");
  EXPECT_EQ(nodes[0]->wait().exit_code, 0) << nodes[0]->err();
}

/// A rank fails because it has lost a peer, and only later the heartbeat reports the lost node. This failure must not
/// count for --max-restarts.
TEST_F(ByHand, ALostNodeIsNoFailureThoughARankNoticesFirst) {
  const auto nodes = join_all(shell({"--heartbeat-timeout", kSilence}, script()), "2:4");
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 4); })) << all_errors(nodes);
  network_->cut(3);
  make_file("fail-0");  // rank 0
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(1, 3); })) << all_errors(nodes);
  make_file("done");
  for (const int host : {0, 1, 2}) EXPECT_EQ(nodes[static_cast<size_t>(host)]->wait().exit_code, 0);
}

TEST_F(ByHand, ANodeThatWaitsForItsHeadAnswersAndEnds) {
  auto node = join(1, {"--", "true"}, "2");
  ASSERT_TRUE(node->wait_until([&] { return node->err().find("waiting for the head") != std::string::npos; }));
  const auto stop = run(options(network_->on(1, {kYoke, "stop", std::to_string(node->pid())})));
  EXPECT_EQ(stop.exit_code, 0) << stop.err;
  EXPECT_EQ(node->wait().exit_code, 143);
}

TEST_F(ByHand, ASignalToOneNodeEndsAJobOfFixedSize) {
  const auto nodes = join_all(shell({}, script()));
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 4); })) << all_errors(nodes);
  nodes[1]->signal(SIGTERM);
  for (const auto& node : nodes) EXPECT_EQ(node->wait().exit_code, 143) << node->err();
}

/// A scheduler, or Ctrl-C in srun, signals every launcher. These signals must count as one request together, because a
/// second request would kill the ranks at once.
TEST_F(ByHand, SignalsToAllNodesLeaveTheGrace) {
  const auto nodes = join_all(shell({}, "trap 'sleep 0.5; : > " + folder_.path() + "/saved.$RANK; exit 0' INT; cd " +
                                            folder_.path() + "; : > 0.$RANK.4; while :; do sleep 0.05; done"));
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 4); })) << all_errors(nodes);
  for (const auto& node : nodes) node->signal(SIGINT);
  for (const auto& node : nodes) EXPECT_EQ(node->wait().exit_code, 130) << node->err();
  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(has_file("saved." + std::to_string(rank))) << rank;
}

TEST_F(ByHand, AnotherTokenOrJobIsRefused) {
  const auto head = join(0, shell({"--rdzv-id", "mine"}, script()), "2");
  auto stranger = options(network_->on(1, {kYoke, "run", "--nnodes", "2", "--node-rank", "1", "--rdzv-id", "mine",
                                           "--rdzv-endpoint", "10.77.0.1:29400", "--", "true"}));
  stranger.environment.back() = {"YOKE_JOB_TOKEN", "a secret of somebody else"};
  auto result = run(stranger);
  EXPECT_EQ(result.exit_code, 77) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("the head node refuses this node, because its --rdzv-id or its token differs from the job's"));
  result = join(1, {"--rdzv-id", "other", "--", "true"}, "2")->wait();
  EXPECT_THAT(result.err, HasSubstr("the head node refuses this node, because its --rdzv-id or its token differs"));
  EXPECT_TRUE(head->wait_until([&] {
    return head->err().find("refused a connection from 10.77.0.2: its --rdzv-id or its token differs from the job's") !=
           std::string::npos;
  })) << head->err();
  EXPECT_FALSE(has_file("0.0.2"));
}

/// The refused node must report the reason at once, and the head must keep waiting for the right node.
TEST_F(ByHand, AnotherNumberOfNodesIsRefused) {
  const auto head = join(0, {"--", "true"}, "2");
  const auto result = join(1, {"--", "true"}, "2:3")->wait();
  EXPECT_EQ(result.exit_code, 77);
  EXPECT_THAT(result.err, HasSubstr("yoke run: the head node refuses this node: the node has --nnodes 2:3, "
                                    "but the head node has 2\n"));
  EXPECT_TRUE(head->wait_until([&] { return head->err().find("the node has --nnodes 2:3") != std::string::npos; }));
  const auto restarts = join(1, {"--max-restarts", "5", "--", "true"}, "2")->wait();
  EXPECT_EQ(restarts.exit_code, 77);
  EXPECT_THAT(restarts.err, HasSubstr("the node has --max-restarts 5, but the head node has 0\n"));
  const auto node = join(1, {"--", "true"}, "2");
  EXPECT_EQ(node->wait().exit_code, 0) << node->err();
  EXPECT_EQ(head->wait().exit_code, 0) << head->err();
}

TEST_F(ByHand, ATakenNodeRankIsRefused) {
  std::vector<std::unique_ptr<Command>> nodes;
  for (const int host : {0, 1}) nodes.push_back(join(host, shell({}, script()), "3"));
  ASSERT_TRUE(wait_for(nodes, [&] { return num_connections(1) > 0; })) << all_errors(nodes);
  for (const std::string rank : {"1", "0"}) {
    // A second rank 0 must start on the head's host. There it finds the port taken, connects to the head, and is
    // refused.
    const auto result =
        run(options(network_->on(rank == "0" ? 0 : 2, {kYoke, "run", "--nnodes", "3", "--node-rank", rank,
                                                       "--rdzv-endpoint", "10.77.0.1:29400", "--", "true"})));
    EXPECT_EQ(result.exit_code, 77) << result.err;
    EXPECT_THAT(result.err, HasSubstr("the head node refuses this node: --node-rank " + rank + " is taken by "));
  }
  EXPECT_TRUE(wait_for(nodes, [&] {
    return nodes[0]->err().find("--node-rank 0 is taken by the head node") != std::string::npos;
  })) << all_errors(nodes);
  nodes.push_back(join(2, shell({}, script()), "3"));
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 3); })) << all_errors(nodes);
  make_file("done");
  for (const auto& node : nodes) EXPECT_EQ(node->wait().exit_code, 0) << node->err();
}

/// Nobody said anything until the join timeout. The head is not refused, because behind a service's name or a forwarded
/// port the endpoint may lead to it.
TEST_F(ByHand, AHeadThatIsNotAtTheEndpointSaysSo) {
  const auto head_for = [&](int host, const std::string& endpoint) {
    return std::make_unique<Command>(options(network_->on(
        host, {kYoke, "run", "--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", endpoint, "--", "true"})));
  };
  const auto says = [](Command& command, const std::string& text) {
    return command.wait_until([&] { return command.err().find(text) != std::string::npos; });
  };
  const auto elsewhere = head_for(0, "10.77.0.4:29400");
  EXPECT_TRUE(says(*elsewhere,
                   "yoke run: nodes look for this head at 10.77.0.4:29400, but this host has 10.77.0.1; correct "
                   "--rdzv-endpoint or --node-rank, unless that address leads here\n"))
      << elsewhere->err();
  elsewhere->signal(SIGTERM);
  EXPECT_EQ(elsewhere->wait().exit_code, 143);

  const auto unknown = head_for(0, "no-such-host.invalid:29400");
  EXPECT_TRUE(
      says(*unknown, "nodes look for this head at no-such-host.invalid:29400, but here that name has no address"))
      << unknown->err();
  unknown->signal(SIGTERM);
  EXPECT_EQ(unknown->wait().exit_code, 143);

  const auto first = head_for(0, "10.77.0.1:29400");
  ASSERT_TRUE(wait_until([&] { return !network_->listening(0).empty(); }));
  const auto second = head_for(1, "10.77.0.1:29400");
  EXPECT_TRUE(says(*second,
                   "yoke run: another head is at 10.77.0.1:29400, where nodes look for this one, and this host has "
                   "10.77.0.2; only the first node has --node-rank 0"))
      << second->err();
  second->signal(SIGTERM);
  EXPECT_EQ(second->wait().exit_code, 143);
  const auto node = join(1, {"--", "true"}, "2");
  EXPECT_EQ(node->wait().exit_code, 0) << node->err();
  EXPECT_EQ(first->wait().exit_code, 0);
  EXPECT_THAT(first->err(), testing::Not(HasSubstr("look for this head"))) << "it is at its endpoint";
}

/// Older TCPStores close the connection when they get the greeting of a node. So do other servers that do not know the
/// greeting.
TEST_F(ByHand, AnEndpointThatHangsUpOnANodeIsNamed) {
  const auto other = std::make_unique<Command>(
      options(network_->on(0, {"python3", "-c",
                               "import socket\ns=socket.create_server(('0.0.0.0',29400))\nprint('up',flush=True)\n"
                               "while True:\n c,_=s.accept()\n c.recv(100)\n c.close()"})));
  ASSERT_TRUE(other->wait_for_output("up"));
  const auto result = join(1, {"--", "true"}, "2")->wait();
  EXPECT_EQ(result.exit_code, 77);
  EXPECT_THAT(
      result.err,
      HasSubstr(
          "cannot join the job at 10.77.0.1:29400: what listens there closes the connection when yoke greets it"));
}

/// The newer backend of PyTorch's TCPStore does not answer clients with a different protocol.
TEST_F(ByHand, AStoreOfTorchAtTheEndpointIsNamed) {
  const auto store = std::make_unique<Command>(options(network_->on(
      0, {"python3", "-c",
          "import socket,threading\n"
          "def serve(c):\n"
          "  text=b''\n"
          "  while True:\n"
          "    more=c.recv(100)\n"
          "    if not more: return\n"
          "    text+=more\n"
          "    if text.startswith(b'\\0\\xce\\xf7\\x85\\x3c\\x0d') and len(text)==10: c.sendall(text[6:])\n"
          "s=socket.create_server(('0.0.0.0',29400))\nprint('up',flush=True)\n"
          "while True: threading.Thread(target=serve,args=(s.accept()[0],)).start()\n"})));
  ASSERT_TRUE(store->wait_for_output("up"));
  const auto result = join(1, {"--", "true"}, "2")->wait();
  EXPECT_EQ(result.exit_code, 77);
  EXPECT_THAT(result.err, HasSubstr("cannot join the job at 10.77.0.1:29400: a TCPStore of PyTorch listens there"));
}

TEST_F(ByHand, AStrangerAtTheEndpointIsSaidOnceAndEndsNothing) {
  const auto head = join(0, {"--", "true"}, "2");
  const auto web =
      "import socket,sys\n"
      "for i in range(5):\n"
      "  while True:\n"
      "    try: s=socket.create_connection(('10.77.0.1',29400)); break\n"
      "    except OSError: pass\n"
      "  s.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n')\n"
      "  while s.recv(100): pass\n";
  const auto stranger = run(options(network_->on(2, {"python3", "-c", web})));
  EXPECT_EQ(stranger.exit_code, 0) << stranger.err;
  const auto node = join(1, {"--", "true"}, "2");
  EXPECT_EQ(head->wait().exit_code, 0) << head->err();
  EXPECT_EQ(node->wait().exit_code, 0) << node->err();
  const auto at = head->err().find(
      "yoke run: refused a connection from 10.77.0.3: a program that is not yoke sent 'GET / HTTP/1.1");
  ASSERT_NE(at, std::string::npos) << head->err();
  EXPECT_EQ(head->err().find("refused", at + 20), std::string::npos) << head->err();
}

TEST_F(ByHand, AnEndpointThatIsNoYokeIsNamed) {
  const auto other = std::make_unique<Command>(
      options(network_->on(0, {"python3", "-c",
                               "import socket\ns=socket.create_server(('0.0.0.0',29400))\nprint('up',flush=True)\n"
                               "while True:\n c,_=s.accept()\n c.sendall(b'SSH-2.0-OpenSSH_9.2\\r\\n\\x1b[31m')"})));
  ASSERT_TRUE(other->wait_for_output("up"));
  const auto result = join(1, {"--", "true"}, "2")->wait();
  EXPECT_EQ(result.exit_code, 77);
  EXPECT_THAT(result.err, AllOf(HasSubstr("10.77.0.1:29400: a program that is not yoke sent 'SSH-2.0-OpenSSH_9.2"),
                                testing::Not(HasSubstr("\x1b"))));
}

/// A client that sends arbitrary bytes to the port must not join, nor disturb the nodes of the job.
TEST_F(ByHand, GarbageAtTheEndpointIsDropped) {
  const auto head = join(0, shell({}, "echo $RANK/$WORLD_SIZE"), "2");
  const auto noise = run(options(
      network_->on(2, {"python3", "-c",
                       "import os,socket,time\n"
                       "for i in range(100):\n"
                       "  for k in range(600):\n"
                       "    try: s=socket.create_connection(('10.77.0.1',29400)); break\n"
                       "    except OSError: time.sleep(0.1)\n"  // clock: it tries again until the head listens
                       "  try:\n"
                       "    s.sendall(os.urandom(i*37)) if i%3 else s.sendall(b'yoke/1 agent\\n'+os.urandom(64))\n"
                       "  except OSError: pass\n"
                       "  if i%2: s.close()\n"})));
  EXPECT_EQ(noise.exit_code, 0) << noise.err;
  const auto node = join(1, shell({}, "echo $RANK/$WORLD_SIZE"), "2");
  EXPECT_EQ(head->wait().exit_code, 0) << head->err();
  EXPECT_EQ(node->wait().exit_code, 0) << node->err();
  EXPECT_THAT(node->out(), HasSubstr("1/2"));
}

/// A job restarts all the time, and at random moments the test kills launchers, guardians and ranks. The remaining
/// launchers must end on request, and no process of the job may remain.
TEST_F(ByHand, KillsAtRandomMomentsLeaveNothing) {
  const int rounds = std::getenv("YOKE_LONG") != nullptr ? 500 : 6;
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const TemporaryFolder temporary;
    std::vector<std::unique_ptr<Command>> nodes;
    for (int host = 0; host < 3; ++host) {
      auto how = options(
          network_->on(host, {kYoke, "run", "--nnodes", "2:3", "--node-rank", std::to_string(host), "--rdzv-endpoint",
                              "10.77.0.1:29400", "--rdzv-conf", "last_call_timeout=0,join_timeout=5", "--max-restarts",
                              "100000", "-n", "2", "--", "sh", "-c", "[ $RANK = 1 ] || exec sleep 60; exit 1"}));
      how.environment.emplace_back("TMPDIR", temporary.path());
      nodes.push_back(std::make_unique<Command>(how));
    }
    poll(nullptr, 0, static_cast<int>(random() % 300));  // clock: any moment will do
    const auto one = random() % 3, other = (one + 1 + random() % 2) % 3;
    switch (random() % 4) {
      case 0: nodes[one]->signal(SIGKILL); break;
      case 1:
        nodes[one]->signal(SIGKILL);
        nodes[other]->signal(SIGKILL);
        break;
      case 2:
        if (const auto guardian = guardian_of(nodes[one]->pid())) kill(*guardian, SIGKILL);
        break;
      default:
        if (const auto guardian = guardian_of(nodes[one]->pid())) {
          for (const auto rank : children_of(*guardian)) kill(rank, SIGKILL);
        }
    }
    poll(nullptr, 0, static_cast<int>(random() % 100));  // clock: any moment will do
    for (const auto& node : nodes) node->signal(SIGTERM);
    for (const auto& node : nodes) EXPECT_FALSE(node->wait(kLong).timed_out) << "round " << round;
    EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag_).empty(); })) << "round " << round;
    EXPECT_TRUE(wait_until([&] { return std::filesystem::is_empty(temporary.path()); })) << "round " << round;
  }
}

}  // namespace
}  // namespace yoke::test
