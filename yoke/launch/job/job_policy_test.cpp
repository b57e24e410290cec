#include "yoke/launch/job/job_policy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <functional>
#include <map>
#include <memory>

#include "yoke/base/signal_name.h"

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Kind = NodeEvent::Kind;
using Phase = JobPolicy::Phase;
using State = MemberState;

std::string text_of(const BeginAttempt& one) { return fmt::format("begin {} after {}", one.num_ranks, one.num_starts); }
std::string text_of(const PrepareNode& one) { return fmt::format("prepare {} at '{}'", one.node, one.address); }
std::string text_of(const StartNode& one) {
  return fmt::format("start {} as node {} of {}, rank {} of {}, port {}", one.node, one.place.node_rank,
                     one.place.num_nodes, one.place.first_rank, one.place.world_size, one.place.master_port);
}
std::string text_of(const TellNode& one) {
  switch (one.order) {
    case Order::kForward: return fmt::format("forward {} to {}", signal_name(one.signal), one.node);
    case Order::kSignal: return fmt::format("{} to {}", signal_name(one.signal), one.node);
    case Order::kKill: return fmt::format("kill {}", one.node);
    case Order::kEndStore: return fmt::format("end store of {}", one.node);
    case Order::kNone: break;
  }
  return "nothing";
}
std::string text_of(const EndNode& one) {
  return fmt::format("end {} with {}{}", one.node, one.exit_status, one.reason.empty() ? "" : ": " + one.reason);
}
std::string text_of(const ForgetNode& one) { return fmt::format("forget {}", one.node); }
std::string text_of(const StartAgent& one) { return fmt::format("start agent {}", one.host); }
std::string text_of(const Say& one) { return "say " + one.line; }
std::string text_of(const ShowFailure& one) { return fmt::format("show failure of {}", one.first_exited); }
std::string text_of(const ForgetFailure&) { return "forget failure"; }
std::string text_of(const Finish& one) { return "finish: " + one.reason; }

constexpr std::array<const char*, 8> kStateNames = {"connecting", "waiting",  "preparing", "running",
                                                    "only store", "draining", "left",      "lost"};
constexpr std::array<const char*, 6> kPhaseNames = {"gathering", "preparing", "starting", "running", "ending", "over"};
std::string name_of(State state) { return kStateNames[static_cast<size_t>(state)]; }
std::string name_of(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }
constexpr int exit_with(int code) { return code << 8; }  // as wait(2) has it

struct Setting {
  int64_t min = 1, max = 1;
  std::vector<std::string> hosts = {};
  int64_t max_restarts = 0;
  int64_t num_ranks = 1;
  bool quiet = false;
};

/// A policy, and an executor that writes the orders down.
class Scene {
 public:
  explicit Scene(const Setting& setting) {
    spec_.num_ranks = setting.num_ranks;
    spec_.max_restarts = setting.max_restarts;
    spec_.quiet = setting.quiet;
    nodes_.membership = {.min_nodes = setting.min, .max_nodes = setting.max, .last_call = seconds(30)};
    for (const auto& host : setting.hosts) nodes_.hosts.push_back({.name = host});
    policy_ = std::make_unique<JobPolicy>(spec_, nodes_, now);
    if (setting.hosts.empty()) {
      policy_->add_own_node({.host = "head", .address = "10.0.0.1", .num_ranks = setting.num_ranks}, now);
    }
  }

  JobPolicy& operator*() { return *policy_; }
  JobPolicy* operator->() { return policy_.get(); }

  /// The orders of an event, and what follows from it.
  std::string take(JobOrders orders) {
    std::string text;
    for (; !orders.empty(); orders = policy_->decide(now, screen)) {
      for (const auto& order : orders) {
        text += (text.empty() ? "" : "; ") + std::visit([](const auto& one) { return text_of(one); }, order);
      }
    }
    return text;
  }
  std::string decide() { return take(policy_->decide(now, screen)); }
  std::string after(JobOrders orders) {
    auto text = take(std::move(orders));
    const auto rest = decide();
    return text + (text.empty() || rest.empty() ? "" : "; ") + rest;
  }
  std::string event(int id, NodeEvent event) { return after(policy_->on_node_event(id, event, now)); }
  std::string lose(int id) { return event(id, {.kind = Kind::kLost, .text = "it is off"}); }
  std::string exit(int id, int64_t rank, int status) {
    return event(id, {.kind = Kind::kExited, .rank = rank, .pid = 10 + static_cast<int>(rank), .value = status});
  }
  /// All processes of the node end, and their output is read.
  std::string end(int id) {
    const auto text = event(id, {.kind = Kind::kEnded});
    const auto rest = event(id, {.kind = Kind::kDone});
    return text + (text.empty() || rest.empty() ? "" : "; ") + rest;
  }
  std::string wait(milliseconds time) {
    now += time;
    return decide();
  }

  static NodeInfo info_of(const std::string& host) { return {.host = host, .address = "10.0.0.9"}; }
  std::string ready(int id, const NodeInfo& info) { return event(id, {.kind = Kind::kReady, .info = info}); }
  /// A node comes by itself and introduces itself.
  int come(const std::string& host) {
    const int id = policy_->add_node();
    ready(id, info_of(host));
    return id;
  }
  std::string prepared(int id) { return event(id, {.kind = Kind::kPrepared, .value = 4000}); }
  void started(int id, int64_t rank) {
    event(id, {.kind = Kind::kStarted, .rank = rank, .pid = 10 + static_cast<int>(rank)});
  }

  std::string state(int id) { return policy_->has(id) ? name_of(policy_->member(id).state) : "lost"; }
  Phase phase() { return policy_->phase(); }
  int exit_code() { return policy_->ranks().exit_code(); }

  JobPolicy::Time now{seconds(1000)};
  JobPolicy::Screen screen = JobPolicy::Screen::kIsWritten;

 private:
  LaunchSpec spec_{.argv = {"true"}};
  NodesSpec nodes_;
  std::unique_ptr<JobPolicy> policy_;
};

/// The head's own node is 0, b is the last one; both have one rank. Returns the id of b, in this state.
int bring_b_to(Scene& scene, State state) {
  const bool is_spare = state == State::kWaiting || state == State::kLeft || state == State::kLost;
  if (state == State::kConnecting) return scene->add_node();
  const int first = is_spare ? scene.come("a") : 0;
  const int b = scene.come("b");
  if (state == State::kPreparing) return b;
  scene.prepared(0);
  const int other = is_spare ? first : b;
  scene.started(0, 0);
  scene.started(other, 1);
  if (state == State::kOnlyStore) scene.event(b, {.kind = Kind::kOnlyStore});
  if (state == State::kDraining) scene.event(b, {.kind = Kind::kEnded});
  if (state == State::kLeft) scene.event(b, {.kind = Kind::kSignal, .value = SIGTERM});
  if (state == State::kLost) scene.lose(b);
  return b;
}

constexpr std::array kStates = {State::kConnecting, State::kWaiting,  State::kPreparing, State::kRunning,
                                State::kOnlyStore,  State::kDraining, State::kLeft,      State::kLost};

/// The events of b that the tables below are about.
std::vector<std::pair<std::string, NodeEvent>> events() {
  return {{"kReady", {.kind = Kind::kReady, .info = Scene::info_of("b")}},
          {"kPrepared", {.kind = Kind::kPrepared, .value = 5000}},
          {"kRefused", {.kind = Kind::kRefused, .value = 75, .text = "no room"}},
          {"kStarted", {.kind = Kind::kStarted, .rank = 1, .pid = 11}},
          {"kCannotRun", {.kind = Kind::kCannotRun, .rank = 1, .value = ENOENT, .text = "true"}},
          {"kCannotStart", {.kind = Kind::kCannotStart, .rank = 1, .value = EAGAIN}},
          {"kExited 0", {.kind = Kind::kExited, .rank = 1, .pid = 11}},
          {"kExited 3", {.kind = Kind::kExited, .rank = 1, .pid = 11, .value = exit_with(3)}},
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

std::vector<std::string> split(const std::string& text, const std::string& separator) {
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

/// Whether `text` is `expected`, or begins as `expected` does before its "...".
testing::AssertionResult is_like(const std::string& text, const std::string& expected) {
  const auto is_open = expected.ends_with("...");
  const auto wanted = expected.substr(0, expected.size() - (is_open ? 3 : 0));
  if (is_open ? text.starts_with(wanted) : text == wanted) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' is not '" << expected << "'";
}

/// `table` has lines "event | states of b | its new state, = for the same | orders". Every other event leaves the state
/// as it is, and orders nothing. Orders that end with "..." are compared up to there.
void expect_table(const Setting& setting, const std::string& table) {
  std::map<std::string, std::string> expected;
  for (const auto& line : split(table, "\n")) {
    if (line.empty()) continue;
    const auto cells = split(line, "|");
    ASSERT_EQ(cells.size(), 4U) << line;
    for (const auto& state : split(cells[1], ",")) {
      const auto is_new = expected.emplace(cells[0] + " while " + state,
                                           (cells[2] == "=" ? state : cells[2]) + ": " + cells[3]);
      ASSERT_TRUE(is_new.second) << line;
    }
  }
  for (const auto& [name, event] : events()) {
    for (const auto state : kStates) {
      Scene scene(setting);
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
kStoreEnded | connecting | = | finish: yoke run: the process that serves the ranks' store (pid 9 on ) ...
kStoreEnded | waiting, running, only store, draining, left | = | SIGTERM to 0; SIGTERM to 1
kStoreEnded | preparing | waiting | SIGTERM to 0; SIGTERM to 1; finish: yoke run: the process that serves the ranks' store (pid 9 on b) ...
kGuardianLost | connecting | left | end 1 with 75; say yoke run: the guardian process (pid 9 on ) was killed
kGuardianLost | waiting | left | end 2 with 75; say yoke run: the guardian process (pid 9 on b) was killed
kGuardianLost | preparing | waiting | kill 0; kill 1; finish: yoke run: the guardian process (pid 9 on b) was killed
kGuardianLost | running, only store, draining | = | kill 0; kill 1
kGuardianLost | left | = | end 2 with 75; say yoke run: the guardian process (pid 9 on b) was killed
kOnlyStore | running | only store | 
kEnded | running, only store | draining | 
kDone | preparing, running, only store, draining | waiting | 
kSignal | connecting | = | finish: yoke run: SIGTERM
kSignal | waiting | left | end 2 with 143
kSignal | preparing | waiting | SIGTERM to 0; SIGTERM to 1; finish: yoke run: SIGTERM
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
kStoreEnded | connecting | = | finish: yoke run: the process that serves the ranks' store (pid 9 on ) ...
kStoreEnded | waiting, running, only store, draining, left | = | SIGTERM to 0; SIGTERM to 1
kStoreEnded | preparing | waiting | SIGTERM to 0; SIGTERM to 1; finish: yoke run: the process that serves the ranks' store (pid 9 on b) ...
kGuardianLost | connecting | left | end 1 with 75; say yoke run: the guardian process (pid 9 on ) was killed
kGuardianLost | waiting | left | end 2 with 75; say yoke run: the guardian process (pid 9 on b) was killed
kGuardianLost | preparing | left | SIGTERM to 0; SIGTERM to 1; end 1 with 75; say yoke run: the guardian process (pid 9 on b) was killed; starting all ranks again; forget failure; begin 1 after 1; prepare 0 at '10.0.0.1'
kGuardianLost | running, only store, draining | = | SIGTERM to 0; SIGTERM to 1
kGuardianLost | left | = | end 2 with 75; say yoke run: the guardian process (pid 9 on b) was killed
kOnlyStore | running | only store | 
kEnded | running, only store | draining | 
kDone | preparing, running, only store, draining | waiting | 
kSignal | connecting | = | finish: yoke run: SIGTERM
kSignal | waiting | left | end 2 with 143
kSignal | preparing | left | SIGTERM to 0; SIGTERM to 1; end 1 with 143; say yoke run: host b leaves (SIGTERM); starting all ranks again; forget failure; begin 1 after 1; prepare 0 at '10.0.0.1'
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

/// Brings a job of the head's own node and b to a phase.
void bring_to(Scene& scene, Phase phase) {
  scene.decide();
  if (phase == Phase::kGathering) return;
  const int b = scene.come("b");
  if (phase == Phase::kPreparing) return;
  scene.prepared(0);
  for (const int id : {0, b}) scene.started(id, id);
  if (phase == Phase::kRunning) return;
  if (phase == Phase::kEnding) scene.screen = JobPolicy::Screen::kIsWaiting;
  for (const int id : {0, b}) {
    scene.exit(id, id, 0);
    scene.end(id);
  }
}

/// kStarting is only there while orders are carried out; ANodeThatRefusesItsStartKeepsTheOthersFromStarting has it.
TEST(JobPolicy, EveryWishOfTheUserInEveryPhase) {
  struct Row {
    std::string wish;
    std::function<JobOrders(Scene&)> event;
    std::map<Phase, std::string> expected;  ///< "new phase: orders". The others: the phase stays, without an order.
  };
  const auto signal = [](int number) { return [=](Scene& scene) { return scene->on_signal(number, scene.now); }; };
  const auto stop = [](StopHow how) { return [=](Scene& scene) { return scene->on_stop(how, scene.now); }; };
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
       [](Scene& scene) { return scene->on_interrupt_at_rank(scene.now); },
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
      {"nothing", [](Scene&) { return JobOrders(); }, {}}};
  for (const auto& row : rows) {
    for (const auto phase : {Phase::kGathering, Phase::kPreparing, Phase::kRunning, Phase::kEnding, Phase::kOver}) {
      SCOPED_TRACE(row.wish + " while " + name_of(phase));
      Scene scene({.min = 2, .max = 2});
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

TEST(JobPolicy, OneMachineIsAJobOfOneNode) {
  Scene scene({.num_ranks = 2});
  EXPECT_EQ(scene.decide(), "begin 2 after 0; prepare 0 at '127.0.0.1'");
  EXPECT_EQ(scene.prepared(0), "start 0 as node 0 of 1, rank 0 of 2, port 4000");
  EXPECT_EQ(scene.exit(0, 0, 0), "");
  EXPECT_EQ(scene.exit(0, 1, 0), "");
  EXPECT_EQ(scene.event(0, {.kind = Kind::kEnded}), "");
  EXPECT_EQ(scene.phase(), Phase::kRunning) << "not all output is here";
  EXPECT_EQ(scene.event(0, {.kind = Kind::kDone}), "finish: ");
  EXPECT_EQ(scene.phase(), Phase::kOver);
}

TEST(JobPolicy, AFailureIsFollowedByARestart) {
  Scene scene({.max_restarts = 1, .num_ranks = 2});
  scene.decide();
  scene.prepared(0);
  for (const int64_t rank : {0, 1}) scene.started(0, rank);
  EXPECT_EQ(scene.exit(0, 1, exit_with(7)), "SIGTERM to 0");
  scene.exit(0, 0, SIGTERM);
  EXPECT_EQ(scene.end(0),
            "show failure of 1; say yoke run: rank 1 (pid 11) exited with code 7; stopped the other rank; starting all "
            "ranks again, restart 1 of 1; forget failure; begin 2 after 1; prepare 0 at '127.0.0.1'");
  EXPECT_EQ(scene.event(0, {.kind = Kind::kPrepared, .value = 4001}),
            "start 0 as node 0 of 1, rank 0 of 2, port 4001")
      << "the port of the first start does not count";
  EXPECT_EQ(scene->ranks().num_starts(), 1);
  for (const int64_t rank : {0, 1}) scene.started(0, rank);
  scene.exit(0, 0, exit_with(8));
  scene.exit(0, 1, SIGTERM);
  EXPECT_EQ(scene.end(0),
            "show failure of 0; finish: yoke run: rank 0 (pid 10) exited with code 8; stopped the other rank");
  EXPECT_EQ(scene.exit_code(), 8);
}

TEST(JobPolicy, RanksThatDoNotEndAreKilledAfterTheGrace) {
  Scene scene({.num_ranks = 2});
  EXPECT_EQ(scene->next_time(), std::nullopt);
  scene.decide();
  scene.prepared(0);
  for (const int64_t rank : {0, 1}) scene.started(0, rank);
  scene.exit(0, 1, exit_with(7));
  EXPECT_EQ(scene->next_time(), scene.now + seconds(1));
  EXPECT_THAT(scene.wait(seconds(1)), HasSubstr("say yoke run: rank 1 (pid 11) exited with code 7; waiting up to 9.0 s"));
  EXPECT_EQ(scene.wait(milliseconds(8999)), "");
  EXPECT_EQ(scene.wait(milliseconds(1)), "kill 0");
  EXPECT_EQ(scene->next_time(), std::nullopt);
  scene.exit(0, 0, SIGKILL);
  scene.event(0, {.kind = Kind::kEnded});
  EXPECT_EQ(scene.wait(seconds(60)), "") << "its output is waited for";
}

TEST(JobPolicy, AnElasticJobGoesOnWithoutALostNode) {
  Scene scene({.min = 2, .max = 3});
  scene.decide();
  const int b = scene.come("b"), c = scene.come("c");
  EXPECT_EQ(scene.prepared(0),
            "start 0 as node 0 of 3, rank 0 of 3, port 4000; start 1 as node 1 of 3, rank 1 of 3, port 4000; "
            "start 2 as node 2 of 3, rank 2 of 3, port 4000");
  for (const int id : {0, b, c}) scene.started(id, id);
  EXPECT_EQ(scene.lose(b), "SIGTERM to 0; SIGTERM to 2; forget 1");
  scene.exit(0, 0, SIGTERM);
  scene.end(0);
  scene.exit(c, 2, SIGTERM);
  EXPECT_EQ(scene.end(c),
            "say yoke run: lost host b: it is off; stopped the 2 other ranks; starting all ranks again; forget "
            "failure; begin 2 after 1; prepare 0 at '10.0.0.1'");
  EXPECT_EQ(scene->ranks().num_restarts(), 0) << "it uses up no restart";
  EXPECT_EQ(scene.lose(c),
            "SIGTERM to 0; say yoke run: lost host c: it is off; starting all ranks again; forget failure; forget 2")
      << "one is too few: the next is waited for";
  scene.come("d");
  EXPECT_EQ(scene.phase(), Phase::kPreparing);
}

TEST(JobPolicy, ALostNodeOfAFixedJobIsAFailure) {
  for (const int64_t max_restarts : {0, 1}) {
    Scene scene({.min = 2, .max = 2, .max_restarts = max_restarts});
    scene.decide();
    const int b = scene.come("b");
    scene.prepared(0);
    scene.lose(b);
    scene.exit(0, 0, SIGTERM);
    const auto orders = scene.end(0);
    EXPECT_THAT(orders, HasSubstr(max_restarts == 0 ? "finish: yoke run: lost host b" : "restart 1 of 1"));
    EXPECT_EQ(scene.exit_code(), max_restarts == 0 ? 75 : 0);
    if (max_restarts == 0) continue;
    EXPECT_EQ(scene.phase(), Phase::kGathering) << "it may come back";
    scene.come("b");
    EXPECT_EQ(scene.phase(), Phase::kPreparing);
  }
}

TEST(JobPolicy, AHostThatCannotBeUsedEndsAJobThatNeedsIt) {
  Scene scene({.min = 2, .max = 2, .hosts = {"a", "b"}});
  EXPECT_EQ(scene.decide(), "start agent 0; start agent 1");
  const int a = scene->on_agent_started(0), b = scene->on_agent_started(1);
  EXPECT_EQ(scene.ready(a, Scene::info_of("a.internal")), "");
  EXPECT_EQ(scene.lose(b), "forget 1; finish: yoke run: cannot use host b: it is off");
  EXPECT_EQ(scene.exit_code(), 75);
}

TEST(JobPolicy, AHostThatIsNotNeededIsTriedAgain) {
  Scene scene({.min = 1, .max = 2, .hosts = {"a", "b"}});
  scene.decide();
  const int a = scene->on_agent_started(0);
  EXPECT_EQ(scene.after(scene->on_agent_failed(1, "no process")),
            "say yoke run: cannot use host b, and try again: no process");
  EXPECT_EQ(scene.wait(milliseconds(999)), "");
  EXPECT_EQ(scene.wait(milliseconds(1)), "start agent 1");
  EXPECT_EQ(scene.lose(scene->on_agent_started(1)), "forget 1") << "it was said once";
  EXPECT_EQ(scene.wait(milliseconds(1999)), "say yoke run: waiting for 1 to 2 nodes, 0 are here: none");
  EXPECT_EQ(scene.wait(milliseconds(1)), "start agent 1") << "pauses double";
  const int b = scene->on_agent_started(1);
  scene.ready(a, Scene::info_of("a.internal"));
  EXPECT_EQ(scene.ready(b, Scene::info_of("b.internal")), "begin 2 after 0; prepare 0 at '10.0.0.9'");
  scene.prepared(a);
  for (const int id : {a, b}) scene.started(id, id == a ? 0 : 1);
  EXPECT_EQ(scene.lose(b), "SIGTERM to 0; forget 2; start agent 1") << "for the next start";
  EXPECT_THAT(scene.lose(scene->on_agent_started(1)), HasSubstr("say yoke run: cannot use host b, and try again"))
      << "it was there in between";
}

TEST(JobPolicy, AHostIsCalledAsTheUserCallsIt) {
  Scene scene({.min = 1, .max = 1, .hosts = {"a"}});
  scene.decide();
  const int a = scene->on_agent_started(0);
  scene.ready(a, Scene::info_of("a.internal"));
  EXPECT_EQ(scene.event(a, {.kind = Kind::kNotice, .text = "hello"}), "say yoke run: a: hello");
  EXPECT_EQ(scene->member(a).info.host, "a");
  EXPECT_EQ(scene->member(a).path_of("/log"), "a:/log");
  EXPECT_EQ(Scene({})->member(0).path_of("/log"), "/log");
}

TEST(JobPolicy, SignalsArePassedOnToNodesThatTheHeadStarted) {
  Scene scene({.min = 2, .max = 2, .hosts = {"a", "b"}});
  scene.decide();
  for (const size_t host : {0, 1}) scene.ready(scene->on_agent_started(host), Scene::info_of("x"));
  scene.prepared(0);
  EXPECT_EQ(scene.after(scene->on_signal(SIGUSR1, scene.now)), "forward SIGUSR1 to 0; forward SIGUSR1 to 1");
}

TEST(JobPolicy, ANodeThatIsToldToEndLeavesIfTheOthersMayGoOn) {
  struct Case {
    std::string name;
    Setting setting;
    int num_others, source;  ///< Nodes beside the head's own; which of them is told.
    std::string orders;
    bool is_stopping;
  };
  const Case kCases[] = {
      {"fixed", {.min = 2, .max = 2}, 1, 1, "SIGTERM to 0; SIGTERM to 1", true},
      {"a spare of a fixed job", {.min = 2, .max = 2}, 2, 2, "end 2 with 143", false},
      {"elastic", {.min = 2, .max = 3}, 2, 1, "SIGTERM to 0; SIGTERM to 1; SIGTERM to 2", false},
  };
  for (const auto& one : kCases) {
    SCOPED_TRACE(one.name);
    Scene scene(one.setting);
    scene.decide();
    for (int i = 1; i <= one.num_others; ++i) scene.come(fmt::format("n{}", i));
    scene.prepared(0);
    EXPECT_EQ(scene.event(one.source, {.kind = Kind::kSignal, .value = SIGTERM}), one.orders);
    EXPECT_EQ(scene->is_stopping(), one.is_stopping);
  }
}

TEST(JobPolicy, ANodeThatLeavesIsToldSoAfterItsRanksHaveEnded) {
  Scene scene({.min = 1, .max = 2});
  scene.decide();
  const int b = scene.come("b");
  scene.prepared(0);
  for (const int id : {0, b}) scene.started(id, id);
  EXPECT_EQ(scene.event(b, {.kind = Kind::kSignal, .value = SIGUSR2}), "SIGUSR2 to 0; SIGUSR2 to 1");
  EXPECT_EQ(scene.event(b, {.kind = Kind::kSignal, .value = SIGUSR2}), "") << "it is leaving already";
  for (const int id : {0, b}) scene.exit(id, id, SIGUSR2);
  EXPECT_EQ(scene.end(b), "");
  EXPECT_EQ(scene.end(0),
            "end 1 with 140; say yoke run: host b leaves (SIGUSR2); stopped the 2 other ranks; starting all ranks "
            "again; forget failure; begin 1 after 1; prepare 0 at '10.0.0.1'");
  EXPECT_EQ(scene.lose(b), "") << "that it has gone is no news";
}

TEST(JobPolicy, OnlyTheFirstLeavesWhenNoMoreCanBeMissed) {
  Scene scene({.min = 2, .max = 3});
  scene.decide();
  const int b = scene.come("b"), c = scene.come("c");
  scene.prepared(0);
  scene.event(b, {.kind = Kind::kSignal, .value = SIGTERM});
  EXPECT_FALSE(scene->is_stopping());
  scene.event(c, {.kind = Kind::kSignal, .value = SIGTERM});
  EXPECT_TRUE(scene->is_stopping()) << "two are needed: the job ends";
}

TEST(JobPolicy, TheHeadCannotDoWithoutItsOwnGuardian) {
  for (const int64_t min : {1, 2}) {
    Scene scene({.min = min, .max = 2, .max_restarts = 5});
    scene.decide();
    scene.come("b");
    scene.prepared(0);
    EXPECT_EQ(scene.event(0, {.kind = Kind::kGuardianLost, .pid = 9}), "kill 0; kill 1");
    scene.end(0);
    EXPECT_EQ(scene.end(1), "finish: yoke run: the guardian process (pid 9 on this host) was killed");
    EXPECT_EQ(scene.exit_code(), 75);
  }
}

TEST(JobPolicy, ANodeWithoutItsGuardianIsDismissedFromAnElasticJob) {
  Scene scene({.min = 1, .max = 2});
  scene.decide();
  const int b = scene.come("b");
  scene.prepared(0);
  EXPECT_EQ(scene.event(b, {.kind = Kind::kGuardianLost, .pid = 9}), "SIGTERM to 0; SIGTERM to 1");
  scene.end(b);
  EXPECT_EQ(scene.end(0),
            "end 1 with 75; say yoke run: the guardian process (pid 9 on b) was killed; starting all ranks again; "
            "forget failure; begin 1 after 1; prepare 0 at '10.0.0.1'");
}

TEST(JobPolicy, NodesThatContradictTheHeadAreRefused) {
  struct Case {
    NodeInfo info;
    std::string why;  ///< Empty: it is welcome.
  };
  const Case kCases[] = {
      {{.host = "b"}, ""},
      {{.host = "b", .nnodes = "2", .max_restarts = 3}, ""},
      {{.host = "b", .nnodes = "3"}, "it was started with --nnodes 3, and the head with 2"},
      {{.host = "b", .max_restarts = 1}, "it was started with --max-restarts 1, and the head with 3"}};
  for (const auto& one : kCases) {
    Scene scene({.min = 2, .max = 2, .max_restarts = 3});
    scene.decide();
    const auto orders = scene.ready(scene->add_node(), one.info);
    EXPECT_EQ(orders, one.why.empty()
                          ? "begin 2 after 0; prepare 0 at '10.0.0.1'"
                          : "say yoke run: refused host b: " + one.why +
                                "; end 1 with 77: yoke run: the head of the job refuses this node: " + one.why);
    EXPECT_EQ(scene.state(1), one.why.empty() ? "preparing" : "left");
  }
}

TEST(JobPolicy, TheSecondNodeOfARankIsRefusedUnlessItReturns) {
  for (const bool is_return : {false, true}) {
    Scene scene({.min = 3, .max = 3});
    scene.decide();
    for (const bool is_second : {false, true}) {
      auto info = Scene::info_of(is_second ? "c" : "b");
      info.node_rank = 1;
      info.is_return = is_second && is_return;
      scene.ready(scene->add_node(), info);
    }
    const auto heard = [&](int) { return scene.now + seconds(1); };
    EXPECT_EQ(scene.after(scene->on_heard([&](int) { return scene.now; })), "") << "the first may be gone";
    EXPECT_EQ(scene.after(scene->on_heard(heard)),
              is_return ? ""
                        : "say yoke run: refused host c: --node-rank 1 is taken by b; end 2 with 77: yoke run: the "
                          "head of the job refuses this node: --node-rank 1 is taken by b");
    EXPECT_EQ(scene.after(scene->on_heard(heard)), "") << "once";
  }
}

TEST(JobPolicy, TheStoreEndsAfterTheRanksOfAllNodes) {
  Scene scene({.min = 2, .max = 2});
  scene.decide();
  const int b = scene.come("b");
  scene.prepared(0);
  EXPECT_EQ(scene.event(0, {.kind = Kind::kOnlyStore}), "") << "ranks of b run";
  EXPECT_EQ(scene.event(b, {.kind = Kind::kEnded}), "end store of 0");
  EXPECT_EQ(scene.state(0), "running");
  EXPECT_EQ(scene.decide(), "") << "it is told once";
  scene.event(b, {.kind = Kind::kDone});
  EXPECT_EQ(scene.end(0), "finish: ");
}

TEST(JobPolicy, TheUserIsToldWhatIsWaitedFor) {
  for (const bool quiet : {false, true}) {
    Scene scene({.min = 3, .max = 3, .quiet = quiet});
    scene.decide();
    scene.come("b");
    EXPECT_EQ(scene.wait(milliseconds(1999)), "");
    EXPECT_EQ(scene.wait(milliseconds(1)),
              quiet ? "" : "say yoke run: waiting for 3 nodes, 2 are here: this host, b");
    EXPECT_EQ(scene.wait(seconds(590)), "") << "once";
    EXPECT_EQ(scene.wait(seconds(8)),
              "finish: yoke run: 2 of at least 3 nodes have come within 10:00: this host, b");
    EXPECT_EQ(scene.exit_code(), 124);
  }
}

TEST(JobPolicy, ANodeThatRefusesItsStartKeepsTheOthersFromStarting) {
  Scene scene({.min = 2, .max = 2});
  scene.decide();
  scene.come("b");
  scene->on_node_event(0, {.kind = Kind::kPrepared, .value = 4000}, scene.now);
  const auto first = scene->decide(scene.now, scene.screen);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(std::visit([](const auto& one) { return text_of(one); }, first[0]),
            "start 0 as node 0 of 2, rank 0 of 2, port 4000");
  EXPECT_EQ(scene.phase(), Phase::kStarting);
  EXPECT_EQ(scene.event(0, {.kind = Kind::kRefused, .value = 71, .text = "no room"}),
            "SIGTERM to 1; finish: yoke run: no room")
      << "b has no rank yet, and ignores the signal";
  EXPECT_EQ(scene.exit_code(), 71);
}

TEST(JobPolicy, RanksAreNumberedOverTheNodes) {
  Scene scene({.min = 3, .max = 3, .num_ranks = 2});
  scene.decide();
  auto info = Scene::info_of("b");
  info.num_ranks = 3;
  scene.ready(scene->add_node(), info);
  info.node_rank = 0;
  info.num_ranks = 1;
  info.address = "10.0.0.7";
  EXPECT_EQ(scene.ready(scene->add_node(), info), "begin 6 after 0; prepare 2 at '10.0.0.7'");
  EXPECT_EQ(scene.prepared(0), "") << "it is not node 0";
  EXPECT_EQ(scene.prepared(2),
            "start 2 as node 0 of 3, rank 0 of 6, port 4000; start 0 as node 1 of 3, rank 1 of 6, port 4000; "
            "start 1 as node 2 of 3, rank 3 of 6, port 4000");
}

TEST(JobPolicy, AStoreAtALoopbackAddressIsOutOfReachOfOtherHosts) {
  for (const bool is_far : {false, true}) {
    Scene scene({.min = 2, .max = 2, .hosts = {"a", "b"}});
    scene.decide();
    for (const size_t host : {0, 1}) {
      auto info = Scene::info_of("x");
      if (host == 0 || !is_far) info.address = "127.0.0.1";
      scene.ready(scene->on_agent_started(host), info);
    }
    EXPECT_EQ(scene.exit_code(), is_far ? 64 : 0);
    EXPECT_EQ(scene.phase(), is_far ? Phase::kOver : Phase::kPreparing);
  }
}

TEST(JobPolicy, OutputIsWaitedForUnlessTheUserWantsTheEnd) {
  Scene scene({});
  scene.decide();
  scene.prepared(0);
  scene.started(0, 0);
  scene.screen = JobPolicy::Screen::kIsWaiting;
  scene.exit(0, 0, 0);
  EXPECT_EQ(scene.end(0), "finish: ");
  EXPECT_EQ(scene.wait(seconds(3600)), "");
  EXPECT_EQ(scene.phase(), Phase::kEnding);
  scene.screen = JobPolicy::Screen::kIsWritten;
  scene.decide();
  EXPECT_EQ(scene.phase(), Phase::kOver);

  Scene stopped({});
  stopped.decide();
  stopped.prepared(0);
  stopped.started(0, 0);
  stopped.after(stopped->on_signal(SIGTERM, stopped.now));
  stopped.exit(0, 0, SIGTERM);
  stopped.event(0, {.kind = Kind::kEnded});
  EXPECT_EQ(stopped->next_time(), stopped.now + seconds(1));
  EXPECT_EQ(stopped.wait(milliseconds(999)), "");
  EXPECT_EQ(stopped.wait(milliseconds(1)), "finish: yoke run: SIGTERM; stopped 1 rank") << "its output was not all read";
}

TEST(JobPolicy, NodesThatGoAtTheEndOfTheJobAreNoNews) {
  Scene scene({.min = 2, .max = 2});
  bring_to(scene, Phase::kEnding);
  EXPECT_EQ(scene.lose(1), "");
  EXPECT_EQ(scene.exit_code(), 0);
}

TEST(JobPolicy, CtrlCIsLeftToARankThatIsAlone) {
  Scene scene({});
  scene.decide();
  scene.prepared(0);
  scene.started(0, 0);
  EXPECT_EQ(scene.after(scene->on_interrupt_at_rank(scene.now)), "");
  EXPECT_FALSE(scene->is_stopping());
  EXPECT_EQ(scene.after(scene->on_signal(SIGINT, scene.now)), "SIGINT to 0") << "not from the terminal";
}

}  // namespace
}  // namespace yoke::launch
