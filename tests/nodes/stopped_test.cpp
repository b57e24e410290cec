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

  /// Starts the job on the first hosts. Rank 0 exits with 75 when another rank has ended, as if it had lost it in a
  /// collective.
  Commands begin(int num_hosts, std::vector<std::string> options) {
    options.insert(options.end(), {"--heartbeat-timeout", kSilence});
    const auto words = shell(std::move(options), "cd " + folder_.path() +
                                                     "; a=$TORCHELASTIC_RESTART_COUNT; echo $$ > pid.$a.$RANK; : > "
                                                     "$a.$RANK.$WORLD_SIZE; [ $RANK = 0 ] || exec sleep 1000; [ $a = 0 "
                                                     "] || exit 0; until [ -e pid.$a.1 ]; do sleep 0.05; done; while "
                                                     "kill -0 $(cat pid.$a.1); do sleep 0.05; done; : > gone; exit 75");
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
              AllOf(ContainsRegex("yoke run: the head node's launcher \\(pid [0-9]+ on .*\\) was stopped, or "
                                  "got no processor, for [0-9.:]+( s)?, so hosts .* and .* gave it up; "
                                  "stopped"),
                    Not(HasSubstr("exited with code 75"))));
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
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("yoke run: this launcher \\(pid [0-9]+\\) was stopped, or got no processor, "
                                  "for [0-9.:]+( s)?, so the head node gave this host up"),
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
                                    milliseconds(2500)))  // clock: any time of the job
      << nodes[0]->err();
  EXPECT_THAT(all_errors(nodes), Not(HasSubstr("lost")));
  nodes[0]->signal(SIGTERM);
  for (const auto& node : nodes) EXPECT_EQ(node->wait(kLong).exit_code, 143) << node->err();
}

}  // namespace
}  // namespace yoke::test
