// Tests exec.h with agents in processes of their own, and with agents whose words are fixed: a real one cannot be told
// to talk nonsense, or to stop in the middle. tests/slurm/alloc_test.cpp has real ones.
#include "yoke/cluster/exec.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/forked_process.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/launch/node/wire.h"

namespace yoke::cluster {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kGreeting(launch::kAgentPreamble);
const int kLost = exit_status(ErrorCode::kUnavailable);

/// A message as channel.h describes it.
std::string message(const json& value) {
  std::string text;
  json::to_cbor(value, text);
  std::string result(4, '\0');
  for (size_t i = 0; i < 4; ++i) result[i] = static_cast<char>(text.size() >> (8 * i));
  return result + text;
}

/// Starts an agent that has received a request for the command.
launch::AgentProcess start_agent(const std::vector<std::string>& argv) {
  auto in = make_pipe(), out = make_pipe();
  const pid_t pid = fork();
  if (pid == 0) {
    in.write_end.reset();
    out.read_end.reset();
    write_all(out.write_end.value(), kGreeting, "the caller");
    launch::Channel channel(std::move(in.read_end), std::move(out.write_end), std::chrono::seconds(60));
    _exit(serve_exec(channel, argv));
  }
  return {std::move(in.write_end), std::move(out.read_end), UniqueFd(), pid};
}

launch::Host with_command(const std::string& name, const std::string& script) {
  return {.name = name, .num_ranks = {}, .start_agent = [script] { return start_agent({"sh", "-c", script}); }};
}

class ExecOnNodes : public testing::Test {
 protected:
  struct Ended {
    int status;
    std::string out, err;
  };

  /// A node that says this on its two streams, and then hangs up.
  launch::Host with_words(const std::string& says, const std::string& complains = "") {
    return {
        .name = "n1", .num_ranks = {}, .start_agent = [this, says, complains] {
          auto in = make_pipe(), out = make_pipe(), err = make_pipe();
          write_all(out.write_end.value(), says, "the caller");
          write_all(err.write_end.value(), complains, "the caller");
          unread_.push_back(std::move(in.read_end));
          return launch::AgentProcess{std::move(in.write_end), std::move(out.read_end), std::move(err.read_end), -1};
        }};
  }

  /// exec_on_nodes() takes the signals of its process.
  Ended exec(const std::vector<launch::Host>& hosts) const {
    test::ForkedProcess caller([&] {
      for (const auto& [fd, file] : {std::pair(STDOUT_FILENO, "out"), std::pair(STDERR_FILENO, "err")}) {
        const UniqueFd opened(open(folder_.path(file).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        dup2(opened.value(), fd);
      }
      return exec_on_nodes(hosts, json::object(), {.name = "yoke exec"}, {});
    });
    const int status = caller.wait();
    return {status, test::slurp(folder_.path("out")), test::slurp(folder_.path("err"))};
  }

  test::TemporaryFolder folder_;
  std::vector<UniqueFd> unread_;
};

TEST_F(ExecOnNodes, TheHighestStatusCounts) {
  const auto ended = exec({with_command("n1", "exit 2"), with_command("n2", "echo out; echo err >&2; exit 5"),
                           with_command("n3", "exit 0")});
  EXPECT_EQ(ended.status, 5);
  EXPECT_EQ(ended.out, "[n2] out\n");
  EXPECT_EQ(ended.err, "[n2] err\n");
  EXPECT_EQ(exec({with_command("n1", "kill -KILL $$")}).status, 128 + SIGKILL);
}

TEST_F(ExecOnNodes, ANodeThatCannotBeReachedIsNamedAndTheOthersRun) {
  const launch::Host absent{.name = "n2", .num_ranks = {}, .start_agent = []() -> launch::AgentProcess {
                              throw Error(ErrorCode::kUnavailable, "node n2 cannot be reached: No route to host");
                            }};
  const auto ended = exec({absent, with_command("n1", "echo out; exit 99")});
  EXPECT_EQ(ended.status, kLost) << "99 is of the command, and the command did not run everywhere";
  EXPECT_EQ(ended.out, "[n1] out\n");
  EXPECT_EQ(ended.err, "yoke exec: node n2 cannot be reached: No route to host\n");
}

TEST_F(ExecOnNodes, ANodeThatTalksNonsenseIsLost) {
  struct Row {
    std::string says, complains, why;
  };
  const auto of = [](const char* text) { return kGreeting + message(json::parse(text)); };
  for (const auto& [says, complains, why] : std::vector<Row>{
           {kGreeting + "GET / HTTP/1.1\r\n\r\n", "", "it sent bytes that are not a message of yoke: 'GET / HTTP"},
           {kGreeting + std::string("\2\0\0\0\xff\xff", 6), "", "it sent bytes that are not a message of yoke"},
           {of(R"([1, 2])"), "", "it sent bytes that are not a message of yoke"},
           {of(R"({"output": 5, "err": false})"), "", "[json.exception.type_error"},
           {of(R"({"output": "text"})"), "", "[json.exception.out_of_range"},
           {of(R"({"exit": "0"})"), "", "[json.exception.type_error"},
           {of(R"({"event": {"kind": 99, "rank": 0, "pid": 0, "value": 0, "text": ""}})"), "",
            "it sent an event of a kind that this yoke does not know"},
           {of(R"({"exit": 143, "signal": 15})"), "", "its agent received SIGTERM, as when Slurm ends the step"},
           {kGreeting + message({{"exit", 0}}).substr(0, 5), "", "its connection was closed"},
           {"Last login: yesterday\n", "", "its connection was closed"},
           {"", "Welcome\nsrun: error: Unable to create step\n", "srun: error: Unable to create step"},
           {kGreeting, kGreeting, "its connection was closed"}}) {
    const auto ended = exec({with_words(says, complains)});
    EXPECT_EQ(ended.status, kLost) << why;
    EXPECT_THAT(ended.err, StartsWith("yoke exec: n1: lost: " + why));
    EXPECT_EQ(ended.out, "");
  }
}

TEST_F(ExecOnNodes, OutputBeforeTheLossIsShown) {
  const auto ended = exec({with_words(kGreeting + message({{"output", "a\npart"}, {"err", false}}))});
  EXPECT_EQ(ended.status, kLost);
  EXPECT_EQ(ended.out, "[n1] a\n[n1] part\n");
}

// A signal that the command survives, and which reached the agent too, is no loss.
TEST_F(ExecOnNodes, ACommandThatSucceedsInSpiteOfASignalHasSucceeded) {
  const auto ended = exec({with_words(kGreeting + message({{"exit", 0}, {"signal", SIGTERM}}))});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.err, "");
}

TEST_F(ExecOnNodes, WhyANodeRefusesIsPrintable) {
  const launch::NodeEvent refusal{.kind = launch::NodeEvent::Kind::kRefused, .value = 66, .text = "no folder \x1b[31m"};
  auto ended = exec({with_words(kGreeting + message({{"event", to_json(refusal)}}))});
  EXPECT_EQ(ended.status, 66);
  EXPECT_THAT(ended.err, AllOf(StartsWith("yoke exec: n1: no folder "), testing::Not(HasSubstr("\x1b"))));
  ended = exec({with_words(kGreeting + message({{"failed", "bad\x1b[31m: is absent"}}) + message({{"exit", 127}}))});
  EXPECT_EQ(ended.status, 127);
  EXPECT_THAT(ended.err, AllOf(StartsWith("yoke exec: n1: bad"), testing::Not(HasSubstr("\x1b"))));
}

TEST_F(ExecOnNodes, NothingStaysThatACommandHasStarted) {
  const auto ended = exec({with_command("n1", "sleep 1000 >/dev/null 2>&1 & echo $!; exit 3")});
  EXPECT_EQ(ended.status, 3);
  ASSERT_THAT(ended.out, StartsWith("[n1] "));
  const pid_t pid = std::atoi(ended.out.substr(5).c_str());
  ASSERT_GT(pid, 0);
  EXPECT_EQ(test::state_of(pid), 'X');
}

TEST(ServeExec, EndsTheCommandWhenItsCallerIsGone) {
  const test::TemporaryFolder folder;
  const auto file = folder.path("pid");
  auto agent = start_agent({"sh", "-c", "trap '' TERM; echo $$ >" + file + "; while :; do sleep 1000; done"});
  EXPECT_TRUE(test::wait_until([&] { return test::slurp(file).ends_with('\n'); }));
  agent.in.reset();
  EXPECT_EQ(wait_for_child(agent.pid), kLost);
  const pid_t pid = std::atoi(test::slurp(file).c_str());
  ASSERT_GT(pid, 0);
  EXPECT_EQ(test::state_of(pid), 'X');
}

}  // namespace
}  // namespace yoke::cluster
