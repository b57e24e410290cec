// Tests jobs by hand on several hosts, one of whose launchers is stopped, or whose own network is cut.
#include <csignal>
#include <fstream>

#include "tests/nodes/nodes.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class Stopped : public Nodes {
 protected:
  using Commands = std::vector<std::unique_ptr<Command>>;

  /// How a launcher that was stopped says that, whatever it was doing then.
  static constexpr const char* kWasStopped =
      "was stopped, (or got no processor|got no processor, or waited for a file system), for [0-9.:]+( s)?, so ";

  /// Starts the job on the first hosts. Rank 0 exits with 75 when another rank has ended, as if it had lost it in a
  /// collective.
  Commands begin(int num_hosts, std::vector<std::string> options) {
    return begin(num_hosts, std::move(options),
                 "[ $RANK = 0 ] || exec sleep 1000; [ $a = 0 ] || exit 0; until [ -e pid.$a.1 ]; do sleep 0.05; done; "
                 "while kill -0 $(cat pid.$a.1); do sleep 0.05; done; : > gone; exit 75");
  }
  Commands begin(int num_hosts, std::vector<std::string> options, const std::string& then) {
    options.insert(options.end(), {"--heartbeat-timeout", kSilence});
    const auto words = shell(std::move(options), "cd " + folder_.path() +
                                                     "; a=$TORCHELASTIC_RESTART_COUNT; echo $$ > pid.$a.$RANK; : > "
                                                     "$a.$RANK.$WORLD_SIZE; " +
                                                     then);
    Commands nodes;
    for (int host = 0; host < num_hosts; ++host) nodes.push_back(join(host, words, std::to_string(num_hosts)));
    EXPECT_TRUE(wait_for(nodes, [&] { return runs(0, num_hosts); })) << all_errors(nodes);
    return nodes;
  }

  static std::string all_errors(const Commands& nodes) {
    std::string text;
    for (const auto& node : nodes) text += node->err();
    return text;
  }

  static bool wait_for(const Commands& nodes, const std::function<bool()>& condition) {
    return wait_until(
        [&] {
          for (const auto& node : nodes) node->wait_until([] { return false; }, milliseconds(1));
          return condition();
        },
        kLong);
  }
};

/// Without this cause, the rank of the head's own host was blamed, or one for which that had waited.
TEST_F(Stopped, AHeadSaysThatItWasStopped) {
  const auto nodes = begin(3, {});
  nodes[0]->signal(SIGSTOP);
  for (const int host : {1, 2}) {
    const auto result = nodes[static_cast<size_t>(host)]->wait(kLong);
    EXPECT_EQ(result.exit_code, 75);
    EXPECT_THAT(result.err, HasSubstr(fmt("lost the head node: it sent nothing for %s.0 s", kSilence)));
  }
  ASSERT_TRUE(wait_until([&] { return has_file("gone"); }));
  nodes[0]->signal(SIGCONT);
  const auto result = nodes[0]->wait(kLong);
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex(std::string("yoke run: the head node's launcher \\(pid [0-9]+ on .*\\) ") +
                                  kWasStopped + "hosts .* and .* gave it up; stopped"),
                    Not(HasSubstr("exited with code 75"))));
}

/// One host was named, as if it had been the one that was lost.
TEST_F(Stopped, AHeadThatIsCutOffNamesAllHosts) {
  const auto nodes = begin(3, {}, "exec sleep 1000");  // rank 0 cannot see that the others end
  network_->cut(0);
  const auto result = nodes[0]->wait(kLong);
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, ContainsRegex("yoke run: lost hosts .* and .*: they sent nothing for [0-9.]+ s; all other "
                                        "hosts at once: is this host's network down\\?; stopped"));
  for (const int host : {1, 2}) EXPECT_EQ(nodes[static_cast<size_t>(host)]->wait(kLong).exit_code, 75);
}

/// A head that was stopped reads what waiting nodes have sent meanwhile, to find out whether it is a store of torch.
TEST_F(Stopped, AHeadDoesNotTakeAWaitingNodeForAStranger) {
  const auto head = join(0, {"--", "true"}, "2");
  ASSERT_TRUE(wait_until([&] { return !network_->listening(0).empty(); }));
  head->signal(SIGSTOP);
  const auto node = join(1, {"--", "true"}, "2");
  const auto num_asked = [&] {
    const auto result = run({.argv = network_->on(0, {"ss", "-H", "-t", "-n", "sport", "=", "29400"})});
    size_t num = 0;
    for (size_t at = 0; (at = result.out.find("CLOSE-WAIT", at)) != result.out.npos; ++at) ++num;
    return num;
  };
  ASSERT_TRUE(node->wait_until([&] { return num_asked() >= 2; }, kLong)) << "the question, and a greeting";
  head->signal(SIGCONT);
  EXPECT_EQ(node->wait(kLong).exit_code, 0) << node->err();
  EXPECT_EQ(head->wait(kLong).exit_code, 0);
  EXPECT_THAT(head->err(), Not(HasSubstr("refused a connection")));
}

/// The ranks of hosts whose launcher and guardian live may save their work, whatever has ended the job.
TEST_F(Stopped, RanksOfOtherHostsHaveTheGraceWhenTheHeadOrAGuardianIsKilled) {
  const auto words =
      shell({}, "cd " + folder_.path() +
                    "; trap ': > saved.$RANK; exit 0' TERM; : > 0.$RANK.3; while :; do sleep 0.05; done");
  for (const bool is_head : {true, false}) {
    Commands nodes;
    for (int host = 0; host < 3; ++host) nodes.push_back(join(host, words, "3"));
    ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 3); })) << all_errors(nodes);
    const auto pid = is_head ? nodes[0]->pid() : guardian_of(nodes[1]->pid()).value_or(0);
    ASSERT_GT(pid, 0);
    kill(pid, SIGKILL);
    for (int host = is_head ? 1 : 0; host < 3; ++host) {
      EXPECT_EQ(nodes[static_cast<size_t>(host)]->wait(kLong).exit_code, 75);
    }
    EXPECT_TRUE(has_file("saved.2"));
    EXPECT_EQ(has_file("saved.1"), is_head);
    EXPECT_EQ(has_file("saved.0"), !is_head);
    for (int rank = 0; rank < 3; ++rank) {
      std::filesystem::remove(folder_.path("saved." + std::to_string(rank)));
      std::filesystem::remove(folder_.path(fmt("0.%d.3", rank)));
    }
  }
}

/// A job that may go on without this host must not have its ranks twice.
TEST_F(Stopped, RanksOfAnElasticJobEndAtOnceWhenTheHeadIsKilled) {
  const auto words =
      shell({"--grace", "1000"}, "cd " + folder_.path() + "; trap : TERM; : > 0.$RANK.2; while :; do sleep 0.05; done");
  Commands nodes;
  for (int host = 0; host < 2; ++host) nodes.push_back(join(host, words, "1:2"));
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 2); })) << all_errors(nodes);
  nodes[0]->signal(SIGKILL);
  EXPECT_EQ(nodes[1]->wait(kLong).exit_code, 75);
}

/// The head knows all ranks, another launcher those of its host.
TEST_F(Stopped, JobsAndStackSayThatRanksAreOnOtherHosts) {
  const auto words = shell({"-n", "2"}, script());
  Commands nodes;
  for (int host = 0; host < 2; ++host) nodes.push_back(join(host, words, "2"));
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(0, 4); })) << all_errors(nodes);
  const auto ask = [&](int host, std::vector<std::string> argv) {
    argv.insert(argv.begin(), kYoke);
    return run(options(network_->on(host, argv))).out;
  };
  EXPECT_THAT(ask(0, {"jobs"}), AllOf(HasSubstr(" 4/4 "), Not(HasSubstr("here of"))));
  EXPECT_THAT(ask(1, {"jobs"}), HasSubstr(" 2/2 here of 4 "));
  EXPECT_THAT(ask(1, {"jobs", "--json"}), HasSubstr("\"world_size\": 4"));
  const auto other = "the other 2 of the job's 4 ranks are on other hosts";
  EXPECT_THAT(ask(0, {"stack"}), Not(HasSubstr(other)));
  EXPECT_THAT(ask(1, {"stack"}), HasSubstr(other));
  make_file("done");
  for (const auto& node : nodes) EXPECT_EQ(node->wait().exit_code, 0) << node->err();
}

/// The job goes on: the hosts that gave the head up join it again, and no rank has failed.
TEST_F(Stopped, AHeadThatGoesOnStartsAllAgain) {
  const auto nodes = begin(3, {"--max-restarts", "1"});
  nodes[0]->signal(SIGSTOP);
  for (const int host : {1, 2}) {
    auto& node = *nodes[static_cast<size_t>(host)];
    ASSERT_TRUE(node.wait_until([&] { return node.err().find("joining the job again") != std::string::npos; }, kLong));
  }
  ASSERT_TRUE(wait_until([&] { return has_file("gone"); }));
  nodes[0]->signal(SIGCONT);
  ASSERT_TRUE(wait_for(nodes, [&] { return runs(1, 3); })) << all_errors(nodes);
  nodes[0]->signal(SIGTERM);
  for (const auto& node : nodes) EXPECT_EQ(node->wait(kLong).exit_code, 143) << node->err();
  EXPECT_THAT(nodes[0]->err(), ContainsRegex("gave it up; stopped .*; starting all ranks again, restart 1 of 1"));
  EXPECT_THAT(nodes[0]->err(), Not(HasSubstr("exited with code 75")));
  EXPECT_THAT(nodes[0]->err(), Not(HasSubstr("not yoke"))) << "a node had asked the stopped head whether it is a store";
}

TEST_F(Stopped, ANodeSaysThatItWasStopped) {
  const auto nodes = begin(3, {});
  nodes[2]->signal(SIGSTOP);
  for (const int host : {0, 1}) EXPECT_EQ(nodes[static_cast<size_t>(host)]->wait(kLong).exit_code, 75);
  EXPECT_THAT(nodes[0]->err(), HasSubstr(fmt("it sent nothing for %s.0 s", kSilence)));
  nodes[2]->signal(SIGCONT);
  const auto result = nodes[2]->wait(kLong);
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, AllOf(ContainsRegex(std::string("yoke run: this launcher \\(pid [0-9]+\\) ") + kWasStopped +
                                              "the head node gave this host up"),
                                Not(HasSubstr("its connection was closed"))));
}

/// What a launcher has not heard while it was stopped itself is not its peers' silence.
TEST_F(Stopped, AJobWhoseLaunchersAreAllStoppedGoesOn) {
  const auto nodes = begin(2, {});
  for (const auto& node : nodes) node->signal(SIGSTOP);
  // clock: longer than --heartbeat-timeout
  poll(nullptr, 0, 1000 * std::stoi(kSilence) + 1500);
  for (const auto& node : nodes) node->signal(SIGCONT);
  EXPECT_FALSE(nodes[0]->wait_until([&] { return nodes[0]->err().find("gave it up") != std::string::npos; },
                                    milliseconds(2500)))  // they have nothing to say
      << nodes[0]->err();
  EXPECT_THAT(all_errors(nodes), Not(HasSubstr("lost")));
  nodes[0]->signal(SIGTERM);
  for (const auto& node : nodes) EXPECT_EQ(node->wait(kLong).exit_code, 143) << node->err();
}

}  // namespace
}  // namespace yoke::test
