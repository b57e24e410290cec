// Tables that test every event in every state of a node.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <map>

#include "yoke/launch/job/job_scene_test.h"

namespace yoke::launch {
namespace {

using Kind = NodeEvent::Kind;
using Phase = JobPolicy::Phase;

/// Adds node b to the job, brings it into `state`, and returns its id. The head's own node is 0. Both have one rank.
int bring_b_to(JobScene& scene, MemberState state) {
  const bool is_spare = state == MemberState::kWaiting || state == MemberState::kLeft || state == MemberState::kLost;
  if (state == MemberState::kConnecting) return scene->add_node();
  const int first = is_spare ? scene.come("a") : 0;
  const int b = scene.come("b");
  if (state == MemberState::kPreparing) return b;
  scene.prepared(0);
  const int other = is_spare ? first : b;
  scene.started(0, 0);
  scene.started(other, 1);
  if (state == MemberState::kOnlyStore) scene.event(b, {.kind = Kind::kOnlyStore});
  if (state == MemberState::kDraining) scene.event(b, {.kind = Kind::kEnded});
  if (state == MemberState::kLeft) scene.event(b, {.kind = Kind::kSignal, .value = SIGTERM});
  if (state == MemberState::kLost) scene.lose(b);
  return b;
}

constexpr std::array kMemberStates = {MemberState::kConnecting, MemberState::kWaiting,   MemberState::kPreparing,
                                      MemberState::kRunning,    MemberState::kOnlyStore, MemberState::kDraining,
                                      MemberState::kLeft,       MemberState::kLost};

/// The events of node b in the tables below.
std::vector<std::pair<std::string, NodeEvent>> node_events() {
  return {{"kReady", {.kind = Kind::kReady, .info = JobScene::info_of("b")}},
          {"kPrepared", {.kind = Kind::kPrepared, .value = 5000}},
          {"kRefused", {.kind = Kind::kRefused, .value = 75, .text = "no room"}},
          {"kStarted", {.kind = Kind::kStarted, .rank = 1, .pid = 11}},
          {"kCannotRun", {.kind = Kind::kCannotRun, .rank = 1, .value = ENOENT, .text = "true"}},
          {"kCannotStart", {.kind = Kind::kCannotStart, .rank = 1, .value = EAGAIN}},
          {"kExited 0", {.kind = Kind::kExited, .rank = 1, .pid = 11}},
          {"kExited 3", {.kind = Kind::kExited, .rank = 1, .pid = 11, .value = W_EXITCODE(3, 0)}},
          {"kState", {.kind = Kind::kState, .rank = 1, .pid = 11, .value = 'D'}},
          {"kKeeps", {.kind = Kind::kKeeps, .rank = 1, .value = 1}},
          {"kStoreEnded", {.kind = Kind::kStoreEnded, .pid = 9, .value = SIGKILL}},
          {"kLeftBehind", {.kind = Kind::kLeftBehind, .pid = 9}},
          {"kGuardianLost", {.kind = Kind::kGuardianLost, .pid = 9}},
          {"kReport", {.kind = Kind::kReport, .rank = 1, .text = "/log"}},
          {"kOnlyStore", {.kind = Kind::kOnlyStore}},
          {"kEnded", {.kind = Kind::kEnded}},
          {"kDone", {.kind = Kind::kDone}},
          {"kSignal", {.kind = Kind::kSignal, .value = SIGTERM}},
          {"kNotice", {.kind = Kind::kNotice, .text = "hello"}},
          {"kLost", {.kind = Kind::kLost, .text = "it is off"}}};
}

std::vector<std::string> split_text(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const auto end = std::min(text.find(separator, at), text.size());
    auto part = text.substr(at, end - at);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    parts.push_back(part);
    at = end + separator.size();
  }
  return parts;
}

/// Whether `text` equals `expected`. If `expected` ends with "...", `text` must begin with the part before the dots.
testing::AssertionResult is_like(const std::string& text, const std::string& expected) {
  const auto is_open = expected.ends_with("...");
  const auto wanted = expected.substr(0, expected.size() - (is_open ? 3 : 0));
  if (is_open ? text.starts_with(wanted) : text == wanted) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' is not '" << expected << "'";
}

/// Each line of `table` is "event | states of b | new state of b ("=" if it stays) | orders". Orders that end with
/// "..." are compared only up to the dots. An event that is not in the table must keep the state and give no orders.
void expect_table(const JobSetting& setting, const std::string& table) {
  std::map<std::string, std::string> expected;
  for (const auto& line : split_text(table, "\n")) {
    if (line.empty()) continue;
    const auto cells = split_text(line, "|");
    ASSERT_EQ(cells.size(), 4U) << line;
    for (const auto& state : split_text(cells[1], ",")) {
      const auto is_new =
          expected.emplace(cells[0] + " while " + state, (cells[2] == "=" ? state : cells[2]) + ": " + cells[3]);
      ASSERT_TRUE(is_new.second) << line;
    }
  }
  for (const auto& [name, event] : node_events()) {
    for (const auto state : kMemberStates) {
      JobScene scene(setting);
      scene.decide();
      const int b = bring_b_to(scene, state);
      const auto before = scene.state(b);
      ASSERT_EQ(before, name_of(state));
      const auto orders = scene.event(b, event);
      const auto row = expected.extract(name + " while " + before);
      EXPECT_TRUE(is_like(fmt::format("{}: {}", scene.state(b), orders), row ? row.mapped() : before + ": "))
          << name << " while " << before;
    }
  }
  EXPECT_TRUE(expected.empty()) << "there is no such event or state: " << expected.begin()->first;
}

TEST(JobPolicy, EveryEventInEveryStateOfANodeOfAFixedJob) {
  expect_table({.min = 2, .max = 2}, R"(
kReady | connecting | preparing | begin 2 after 0; prepare 0 at '10.0.0.1'
kRefused | connecting | = | finish: yoke run: : no room
kRefused | waiting, left | = | SIGTERM to 0; SIGTERM to 1
kRefused | preparing | waiting | SIGTERM to 0; finish: yoke run: b: no room
kRefused | running, only store, draining | waiting | SIGTERM to 0
kCannotRun | connecting | = | finish: yoke run: cannot run 'true': ...
kCannotRun | waiting, running, only store, draining, left | = | SIGTERM to 0; SIGTERM to 1
kCannotRun | preparing | waiting | SIGTERM to 0; SIGTERM to 1; finish: yoke run: cannot run 'true' on b: ...
kCannotStart | connecting | = | finish: yoke run: cannot start rank 1 of 1: ...
kCannotStart | waiting, running, only store, draining, left | = | SIGTERM to 0; SIGTERM to 1
kCannotStart | preparing | waiting | SIGTERM to 0; SIGTERM to 1; finish: yoke run: cannot start rank 1 of 2 on b: ...
kExited 3 | connecting | = | finish: yoke run: rank 1 (pid 11) exited with code 3
kExited 3 | waiting, running, only store, draining, left | = | SIGTERM to 0; SIGTERM to 1
kExited 3 | preparing | waiting | SIGTERM to 0; SIGTERM to 1; show failure of 1; finish: yoke run: rank 1 (pid 11 on b) ...
kStoreEnded | connecting | = | finish: yoke run: the process that serves the ranks' TCPStore (pid 9 on ) ...
kStoreEnded | waiting, running, only store, draining, left | = | SIGTERM to 0; SIGTERM to 1
kStoreEnded | preparing | waiting | SIGTERM to 0; SIGTERM to 1; finish: yoke run: the process that serves the ranks' TCPStore (pid 9 on b) ...
kGuardianLost | connecting | left | end 1 with 75; say yoke run: the process that starts and watches the ranks (pid 9 on ) was killed
kGuardianLost | waiting | left | end 2 with 75; say yoke run: the process that starts and watches the ranks (pid 9 on b) was killed
kGuardianLost | preparing | waiting | kill 0; kill 1; finish: yoke run: the process that starts and watches the ranks (pid 9 on b) was killed
kGuardianLost | running, only store, draining | = | SIGTERM to 0; SIGTERM to 1
kGuardianLost | left | = | end 2 with 75; say yoke run: the process that starts and watches the ranks (pid 9 on b) was killed
kOnlyStore | running | only store | 
kEnded | running, only store | draining | 
kDone | preparing, running, only store, draining | waiting | 
kSignal | connecting | = | finish: yoke run: a host received SIGTERM
kSignal | waiting | left | end 2 with 143
kSignal | preparing | waiting | SIGTERM to 0; SIGTERM to 1; finish: yoke run: host b received SIGTERM
kSignal | running, only store, draining | = | SIGTERM to 0; SIGTERM to 1
kNotice | connecting | = | say yoke run: : hello
kNotice | waiting, preparing, running, only store, draining, left | = | say yoke run: b: hello
kLost | connecting | lost | forget 1
kLost | waiting | lost | say yoke run: lost host b: it is off
kLost | preparing | lost | SIGTERM to 0; finish: yoke run: lost host b: it is off
kLost | running, only store, draining | lost | SIGTERM to 0
kLost | left | lost | 
)");
}

TEST(JobPolicy, EveryEventInEveryStateOfANodeOfAnElasticJob) {
  expect_table({.min = 1, .max = 2}, R"(
kReady | connecting | preparing | begin 2 after 0; prepare 0 at '10.0.0.1'
kRefused | connecting | = | say yoke run: : no room
kRefused | waiting, left | = | say yoke run: b: no room
kRefused | preparing | waiting | SIGTERM to 0; finish: yoke run: b: no room
kRefused | running, only store, draining | waiting | SIGTERM to 0
kCannotRun | connecting | = | finish: yoke run: cannot run 'true': ...
kCannotRun | waiting, running, only store, draining, left | = | SIGTERM to 0; SIGTERM to 1
kCannotRun | preparing | waiting | SIGTERM to 0; SIGTERM to 1; finish: yoke run: cannot run 'true' on b: ...
kCannotStart | connecting | = | finish: yoke run: cannot start rank 1 of 1: ...
kCannotStart | waiting, running, only store, draining, left | = | SIGTERM to 0; SIGTERM to 1
kCannotStart | preparing | waiting | SIGTERM to 0; SIGTERM to 1; finish: yoke run: cannot start rank 1 of 2 on b: ...
kExited 3 | connecting | = | finish: yoke run: rank 1 (pid 11) exited with code 3
kExited 3 | waiting, running, only store, draining, left | = | SIGTERM to 0; SIGTERM to 1
kExited 3 | preparing | waiting | SIGTERM to 0; SIGTERM to 1; show failure of 1; finish: yoke run: rank 1 (pid 11 on b) ...
kStoreEnded | connecting | = | finish: yoke run: the process that serves the ranks' TCPStore (pid 9 on ) ...
kStoreEnded | waiting, running, only store, draining, left | = | SIGTERM to 0; SIGTERM to 1
kStoreEnded | preparing | waiting | SIGTERM to 0; SIGTERM to 1; finish: yoke run: the process that serves the ranks' TCPStore (pid 9 on b) ...
kGuardianLost | connecting | left | end 1 with 75; say yoke run: the process that starts and watches the ranks (pid 9 on ) was killed
kGuardianLost | waiting | left | end 2 with 75; say yoke run: the process that starts and watches the ranks (pid 9 on b) was killed
kGuardianLost | preparing | left | SIGTERM to 0; SIGTERM to 1; end 1 with 75; say yoke run: the process that starts and watches the ranks (pid 9 on b) was killed; starting all ranks again; forget failure; begin 1 after 1; prepare 0 at '10.0.0.1'
kGuardianLost | running, only store, draining | = | SIGTERM to 0; SIGTERM to 1
kGuardianLost | left | = | end 2 with 75; say yoke run: the process that starts and watches the ranks (pid 9 on b) was killed
kOnlyStore | running | only store | 
kEnded | running, only store | draining | 
kDone | preparing, running, only store, draining | waiting | 
kSignal | connecting | = | finish: yoke run: a host received SIGTERM
kSignal | waiting | left | end 2 with 143
kSignal | preparing | left | SIGTERM to 0; SIGTERM to 1; end 1 with 143; say yoke run: host b received SIGTERM and leaves the job; starting all ranks again; forget failure; begin 1 after 1; prepare 0 at '10.0.0.1'
kSignal | running, only store, draining | = | SIGTERM to 0; SIGTERM to 1
kNotice | connecting | = | say yoke run: : hello
kNotice | waiting, preparing, running, only store, draining, left | = | say yoke run: b: hello
kLost | connecting | lost | forget 1
kLost | waiting | lost | say yoke run: lost host b: it is off; forget 2
kLost | preparing | lost | SIGTERM to 0; say yoke run: lost host b: it is off; starting all ranks again; forget failure; forget 1; begin 1 after 1; prepare 0 at '10.0.0.1'
kLost | running, only store, draining | lost | SIGTERM to 0; forget 1
kLost | left | lost | forget 2
)");
}

/// This table lacks the phase kStarting, which exists only while orders are carried out. The test
/// ANodeThatRefusesItsStartKeepsTheOthersFromStarting covers it.
TEST(JobPolicy, EveryWishOfTheUserInEveryPhase) {
  struct Row {
    std::string wish;
    std::function<JobOrders(JobScene&)> event;
    std::map<Phase, std::string> expected;  ///< "new phase: orders". In phases that are not listed, the event must keep
                                            ///< the phase and give no orders.
  };
  const auto signal = [](int number) { return [=](JobScene& scene) { return scene->on_signal(number, scene.now); }; };
  const auto stop = [](StopHow how) { return [=](JobScene& scene) { return scene->on_stop(how, scene.now); }; };
  const std::vector<Row> rows = {
      {"SIGTERM",
       signal(SIGTERM),
       {{Phase::kGathering, "over: finish: yoke run: SIGTERM"},
        {Phase::kPreparing, "over: SIGTERM to 0; SIGTERM to 1; finish: yoke run: SIGTERM"},
        {Phase::kRunning, "running: SIGTERM to 0; SIGTERM to 1"},
        {Phase::kEnding, "over: "}}},
      {"SIGUSR1",
       signal(SIGUSR1),
       {{Phase::kPreparing, "preparing: forward SIGUSR1 to 0"}, {Phase::kRunning, "running: forward SIGUSR1 to 0"}}},
      {"Ctrl-C at a rank",
       [](JobScene& scene) { return scene->on_interrupt_at_rank(scene.now); },
       {{Phase::kGathering, "over: finish: yoke run: SIGINT"},
        {Phase::kPreparing, "over: SIGINT to 0; SIGINT to 1; finish: yoke run: SIGINT"},
        {Phase::kRunning, "running: SIGINT to 0; SIGINT to 1"},
        {Phase::kEnding, "over: "}}},
      {"yoke stop",
       stop(StopHow::kWithGrace),
       {{Phase::kGathering, "over: finish: yoke run: `yoke stop`"},
        {Phase::kPreparing, "over: SIGTERM to 0; SIGTERM to 1; finish: yoke run: `yoke stop`"},
        {Phase::kRunning, "running: SIGTERM to 0; SIGTERM to 1"},
        {Phase::kEnding, "over: "}}},
      {"yoke stop --now",
       stop(StopHow::kNow),
       {{Phase::kGathering, "over: finish: yoke run: `yoke stop`"},
        {Phase::kPreparing, "over: kill 0; kill 1; finish: yoke run: `yoke stop`"},
        {Phase::kRunning, "running: kill 0; kill 1"},
        {Phase::kEnding, "over: "}}},
      {"nothing", [](JobScene&) { return JobOrders(); }, {}}};
  for (const auto& row : rows) {
    for (const auto phase : {Phase::kGathering, Phase::kPreparing, Phase::kRunning, Phase::kEnding, Phase::kOver}) {
      SCOPED_TRACE(row.wish + " while " + name_of(phase));
      JobScene scene({.min = 2, .max = 2});
      bring_to(scene, phase);
      ASSERT_EQ(scene.phase(), phase);
      const auto orders = scene.after(row.event(scene));
      const auto expected = row.expected.find(phase);
      EXPECT_EQ(fmt::format("{}: {}", name_of(scene.phase()), orders),
                expected == row.expected.end() ? name_of(phase) + ": " : expected->second);
      EXPECT_EQ(scene->is_stopping(), row.wish != "SIGUSR1" && row.wish != "nothing");
    }
  }
}

}  // namespace
}  // namespace yoke::launch
