#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "yoke/launch/job/job_scene_test.h"

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Kind = NodeEvent::Kind;
using Phase = JobPolicy::Phase;

TEST(JobPolicy, OneMachineIsAJobOfOneNode) {
  JobScene scene({.num_ranks = 2});
  EXPECT_EQ(scene.decide(), "begin 2 after 0; prepare 0 at '127.0.0.1'");
  EXPECT_EQ(scene.prepared(0), "start 0 as node 0 of 1, rank 0 of 2, port 4000");
  EXPECT_EQ(scene.exit(0, 0, 0), "");
  EXPECT_EQ(scene.exit(0, 1, 0), "");
  EXPECT_EQ(scene.event(0, {.kind = Kind::kEnded}), "");
  EXPECT_EQ(scene.phase(), Phase::kRunning) << "not all output is here";
  EXPECT_EQ(scene.event(0, {.kind = Kind::kDone}), "finish: ");
  EXPECT_EQ(scene.phase(), Phase::kOver);
}

TEST(JobPolicy, RanksAreNumberedWithinTheirRole) {
  JobScene scene({.min = 3, .max = 3, .num_ranks = 2});
  scene.decide();
  for (const auto& [host, role, num_ranks] : {std::tuple{"b", "reader", 1}, {"c", "default", 4}}) {
    auto info = JobScene::info_of(host);
    info.role = role;
    info.num_ranks = num_ranks;
    scene.ready(scene->add_node(), info);
  }
  EXPECT_EQ(scene.prepared(0),
            "start 0 as node 0 of 3, rank 0 of 7, in its role 0 of 6, port 4000; "
            "start 1 as node 1 of 3, rank 2 of 7, in its role 0 of 1, port 4000; "
            "start 2 as node 2 of 3, rank 3 of 7, in its role 2 of 6, port 4000");
}

TEST(JobPolicy, ARestartWaitsIfTheCauseMayLieOutside) {
  JobScene scene({.restarts = {3, 1000}});
  scene.decide();
  const auto fail = [&](std::optional<int64_t> num_steps) {
    scene.prepared(0);
    scene.started(0, 0);
    scene.exit(0, 0, W_EXITCODE(1, 0));
    scene.event(0, {.kind = Kind::kEnded});
    if (num_steps) scene.event(0, {.kind = Kind::kReport, .rank = 0, .num_steps = num_steps});
    return scene.event(0, {.kind = Kind::kDone});
  };
  EXPECT_THAT(fail(5), HasSubstr("prepare 0"));
  EXPECT_THAT(fail(std::nullopt), AllOf(HasSubstr("again in 1.0 s"), Not(HasSubstr("prepare 0"))));
  EXPECT_EQ(scene->next_time(), scene.now + seconds(1));
  EXPECT_EQ(scene.wait(milliseconds(999)), "");
  EXPECT_THAT(scene.wait(milliseconds(1)), HasSubstr("prepare 0"));
  EXPECT_EQ(scene->next_time(), std::nullopt);

  EXPECT_THAT(fail(std::nullopt), HasSubstr("again in 2.0 s"));
  EXPECT_EQ(scene.after(scene->on_signal(SIGTERM, scene.now)),
            "finish: yoke run: SIGTERM before the next start, after rank 0 (pid 10) exited with code 1")
      << "a signal ends the job while a restart waits";
}

TEST(JobPolicy, AKilledRankIsReplacedWhileTheOthersRun) {
  JobScene scene({.num_ranks = 2, .replacements = 1});
  scene.decide();
  scene.prepared(0);
  for (const int64_t rank : {0, 1}) scene.started(0, rank);
  const auto lose = [&](int64_t rank) {
    return scene.event(
        0, {.kind = Kind::kExited, .rank = rank, .pid = 10 + static_cast<int>(rank), .value = SIGKILL, .kept_step = 7});
  };
  EXPECT_EQ(lose(1),
            "say yoke run: rank 1 (pid 11) was killed by SIGKILL; starting it again, replacement 1 of 1; "
            "replace 1 (pid 11) of 0, number 1");
  scene.started(0, 1);
  EXPECT_EQ(lose(0), "SIGTERM to 0");
  scene.exit(0, 1, SIGTERM);
  EXPECT_EQ(scene.end(0),
            "show failure of 0; finish: yoke run: rank 0 (pid 10) was killed by SIGKILL, and is not replaced, because "
            "1 replacement was made already; stopped the other rank");
}

TEST(JobPolicy, AKillAfterAnotherThatTheRanksHaveNotGotOverDoesNotHideIt) {
  JobScene scene({.num_ranks = 2, .replacements = 5});
  scene.decide();
  scene.prepared(0);
  for (const int64_t rank : {0, 1}) scene.started(0, rank);
  scene.event(0, {.kind = Kind::kExited, .rank = 1, .pid = 11, .value = SIGKILL, .kept_step = 7});
  scene.started(0, 1);
  scene.event(0, {.kind = Kind::kExited, .rank = 1, .pid = 21, .value = SIGKILL});
  scene.exit(0, 0, SIGTERM);
  EXPECT_THAT(scene.end(0),
              HasSubstr("rank 1 (pid 21) was killed by SIGKILL, and is not replaced, because it kept no state of a "
                        "training then, as train::Run does from the first batch to the last; before, rank 1 (pid 11) "
                        "was killed by SIGKILL, and was started again; stopped the other rank"));
}

TEST(JobPolicy, AKilledRankOfAnotherNodeIsReplacedThere) {
  JobScene scene({.min = 2, .max = 2, .num_ranks = 2, .replacements = 2});
  bring_to(scene, Phase::kRunning);  // b has one rank
  scene.started(1, 2);
  const NodeEvent lost{.kind = Kind::kExited, .rank = 2, .pid = 12, .value = SIGKILL, .kept_step = 7};
  EXPECT_EQ(scene.event(1, lost),
            "say yoke run: rank 2 (pid 12 on b) was killed by SIGKILL; starting it again, replacement 1 of 2; "
            "replace 2 (pid 12) of 1, number 1");
  EXPECT_EQ(scene.state(1), "running") << "although no rank of it runs for a moment";
  EXPECT_EQ(scene.event(1, {.kind = Kind::kRefused, .rank = 2, .value = 75, .text = "no files are left"}),
            "SIGTERM to 0; SIGTERM to 1")
      << "the node still has processes";
  for (const int id : {0, 1}) scene.end(id);
  EXPECT_EQ(scene.exit_code(), 75);
}

TEST(JobPolicy, AHostThatIsLostEndsAllWhateverMayBeReplaced) {
  JobScene scene({.min = 2, .max = 2, .replacements = 9});
  bring_to(scene, Phase::kRunning);
  EXPECT_EQ(scene.lose(1), "SIGTERM to 0");
  EXPECT_EQ(scene.end(0),
            "finish: yoke run: lost host b: it is off; its ranks are not replaced, because what they have kept is on "
            "that host; stopped the other rank");
}

TEST(JobPolicy, AFailureIsFollowedByARestart) {
  JobScene scene({.restarts = {1}, .num_ranks = 2});
  scene.decide();
  scene.prepared(0);
  for (const int64_t rank : {0, 1}) scene.started(0, rank);
  EXPECT_EQ(scene.exit(0, 1, W_EXITCODE(7, 0)), "SIGTERM to 0");
  scene.exit(0, 0, SIGTERM);
  EXPECT_EQ(scene.end(0),
            "show failure of 1; say yoke run: rank 1 (pid 11) exited with code 7; stopped the other rank; starting all "
            "ranks again, restart 1 of 1; forget failure; begin 2 after 1; prepare 0 at '127.0.0.1'");
  EXPECT_EQ(scene.event(0, {.kind = Kind::kPrepared, .value = 4001}), "start 0 as node 0 of 1, rank 0 of 2, port 4001")
      << "the port of the first start does not count";
  EXPECT_EQ(scene->ranks().num_starts(), 1);
  for (const int64_t rank : {0, 1}) scene.started(0, rank);
  scene.exit(0, 0, W_EXITCODE(8, 0));
  scene.exit(0, 1, SIGTERM);
  EXPECT_EQ(scene.end(0),
            "show failure of 0; finish: yoke run: rank 0 (pid 10) exited with code 8; stopped the other rank");
  EXPECT_EQ(scene.exit_code(), 8);
}

TEST(JobPolicy, RanksThatDoNotEndAreKilledAfterTheGrace) {
  JobScene scene({.num_ranks = 2});
  EXPECT_EQ(scene->next_time(), std::nullopt);
  scene.decide();
  scene.prepared(0);
  for (const int64_t rank : {0, 1}) scene.started(0, rank);
  scene.exit(0, 1, W_EXITCODE(7, 0));
  EXPECT_EQ(scene->next_time(), scene.now + seconds(1));
  EXPECT_THAT(scene.wait(seconds(1)),
              HasSubstr("say yoke run: rank 1 (pid 11) exited with code 7; waiting up to 9.0 s"));
  EXPECT_EQ(scene.wait(milliseconds(8999)), "");
  EXPECT_EQ(scene.wait(milliseconds(1)), "kill 0");
  EXPECT_EQ(scene->next_time(), std::nullopt);
  scene.exit(0, 0, SIGKILL);
  scene.event(0, {.kind = Kind::kEnded});
  EXPECT_EQ(scene.wait(seconds(60)), "") << "its output is waited for";
}

TEST(JobPolicy, AnElasticJobGoesOnWithoutALostNode) {
  JobScene scene({.min = 2, .max = 3});
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
    JobScene scene({.min = 2, .max = 2, .restarts = {max_restarts}});
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
  JobScene scene({.min = 2, .max = 2, .hosts = {"a", "b"}});
  EXPECT_EQ(scene.decide(), "start agent 0; start agent 1");
  const int a = scene->on_agent_started(0), b = scene->on_agent_started(1);
  EXPECT_EQ(scene.ready(a, JobScene::info_of("a.internal")), "");
  EXPECT_EQ(scene.lose(b), "forget 1; finish: yoke run: cannot use host b: it is off");
  EXPECT_EQ(scene.exit_code(), 75);
}

TEST(JobPolicy, AHostThatIsNotNeededIsTriedAgain) {
  JobScene scene({.min = 1, .max = 2, .hosts = {"a", "b"}});
  scene.decide();
  const int a = scene->on_agent_started(0);
  EXPECT_EQ(scene.after(scene->on_agent_failed(1, "no process")),
            "say yoke run: cannot use host b: no process; trying again");
  EXPECT_EQ(scene.wait(milliseconds(999)), "");
  EXPECT_EQ(scene.wait(milliseconds(1)), "start agent 1");
  EXPECT_EQ(scene.lose(scene->on_agent_started(1)), "forget 1") << "it was said once";
  EXPECT_EQ(scene.wait(milliseconds(1999)),
            "say yoke run: waiting for 1 to 2 nodes, of which 0 joined so far: none; missing: a, b");
  EXPECT_EQ(scene.wait(milliseconds(1)), "start agent 1") << "pauses double";
  const int b = scene->on_agent_started(1);
  scene.ready(a, JobScene::info_of("a.internal"));
  EXPECT_EQ(scene.ready(b, JobScene::info_of("b.internal")), "begin 2 after 0; prepare 0 at '10.0.0.9'");
  scene.prepared(a);
  for (const int id : {a, b}) scene.started(id, id == a ? 0 : 1);
  EXPECT_EQ(scene.lose(b), "SIGTERM to 0; forget 2; start agent 1") << "for the next start";
  EXPECT_THAT(scene.lose(scene->on_agent_started(1)), HasSubstr("say yoke run: cannot use host b: "))
      << "it was there in between";
}

/// After the loss of a host, its agent may fail to start for a while. The job waits and tries again.
TEST(JobPolicy, AHostThatWasLostIsWaitedFor) {
  JobScene scene({.min = 2, .max = 2, .hosts = {"a", "b"}, .restarts = {1}});
  scene.decide();
  for (const size_t host : {0, 1}) scene.ready(scene->on_agent_started(host), JobScene::info_of("x"));
  scene.prepared(0);
  EXPECT_EQ(scene.lose(1), "SIGTERM to 0") << "it is tried again once the other ranks have ended";
  EXPECT_THAT(scene.end(0), HasSubstr("restart 1 of 1; forget failure; forget 1; start agent 1"));
  EXPECT_EQ(scene.lose(scene->on_agent_started(1)),
            "say yoke run: cannot use host b: it is off; trying again; forget 2");
  EXPECT_EQ(scene.wait(seconds(1)), "start agent 1");
}

TEST(JobPolicy, ASpareTakesThePlaceOfALostHostAtTheNextStart) {
  JobScene scene({.min = 2, .max = 2, .hosts = {"a", "b", "c"}, .restarts = {3}, .spares = 1});
  EXPECT_EQ(scene.decide(), "start agent 0; start agent 1; start agent 2");
  for (const size_t host : {0, 1, 2}) scene->on_agent_started(host);
  const auto ready = [&](int id) { return scene.ready(id, {.host = "x", .address = fmt::format("10.0.0.{}", id)}); };
  EXPECT_EQ(ready(2) + ready(0), "");
  EXPECT_EQ(ready(1), "begin 2 after 0; prepare 0 at '10.0.0.0'");
  scene.prepared(0);
  EXPECT_EQ(scene.state(2), "waiting");
  EXPECT_EQ(scene.lose(1), "SIGTERM to 0; forget 1; start agent 1");
  ready(scene->on_agent_started(1));
  EXPECT_EQ(scene.end(0),
            "say yoke run: lost host b: it is off; starting all ranks again, restart 1 of 3; forget failure; say yoke "
            "run: the spare host c takes the place of host b; begin 2 after 1; prepare 0 at '10.0.0.0'")
      << "although the lost host is there again";
  EXPECT_EQ(scene.prepared(0),
            "start 0 as node 0 of 2, rank 0 of 2, port 4000; start 2 as node 1 of 2, rank 1 of 2, port 4000");

  EXPECT_EQ(scene.lose(0), "SIGTERM to 2; forget 0; start agent 0");
  EXPECT_THAT(scene.end(2), HasSubstr("say yoke run: the spare host c takes the place of host a; say yoke run: host b "
                                      "takes its place again; begin 2 after 2; prepare 2 at '10.0.0.2'"))
      << "rank 0 is at another address";
  scene.prepared(2);
  EXPECT_EQ(scene.lose(2), "SIGTERM to 3; forget 2; start agent 2");
  EXPECT_THAT(scene.end(3), HasSubstr("restart 3 of 3; forget failure")) << "two are needed";
  EXPECT_EQ(scene.phase(), Phase::kGathering);
  EXPECT_THAT(ready(scene->on_agent_started(0)), HasSubstr("begin 2 after 3; prepare"));
}

TEST(JobPolicy, ASpareThatIsLostIsMissedByNobody) {
  JobScene scene({.min = 1, .max = 1, .hosts = {"a", "b"}, .restarts = {1}, .spares = 1});
  scene.decide();
  const int a = scene->on_agent_started(0), b = scene->on_agent_started(1);
  EXPECT_EQ(scene.lose(b), "say yoke run: cannot use host b: it is off; trying again; forget 1");
  scene.ready(a, JobScene::info_of("x"));
  scene.prepared(a);
  scene.wait(seconds(1));
  const int again = scene->on_agent_started(1);
  scene.ready(again, JobScene::info_of("x"));
  EXPECT_EQ(scene.lose(again), "say yoke run: lost host b: it is off; forget 2; start agent 1");
  EXPECT_EQ(scene.phase(), Phase::kRunning);
}

TEST(JobPolicy, AHostIsCalledAsTheUserCallsIt) {
  JobScene scene({.min = 1, .max = 1, .hosts = {"a"}});
  scene.decide();
  const int a = scene->on_agent_started(0);
  scene.ready(a, JobScene::info_of("a.internal"));
  EXPECT_EQ(scene.event(a, {.kind = Kind::kNotice, .text = "hello"}), "say yoke run: a: hello");
  EXPECT_EQ(scene->member(a).info.host, "a");
  EXPECT_EQ(scene->member(a).path_of("/log"), "a:/log");
  EXPECT_EQ(JobScene({})->member(0).path_of("/log"), "/log");
}

TEST(JobPolicy, SignalsArePassedOnToNodesThatTheHeadStarted) {
  JobScene scene({.min = 2, .max = 2, .hosts = {"a", "b"}});
  scene.decide();
  for (const size_t host : {0, 1}) scene.ready(scene->on_agent_started(host), JobScene::info_of("x"));
  scene.prepared(0);
  EXPECT_EQ(scene.after(scene->on_signal(SIGUSR1, scene.now)), "forward SIGUSR1 to 0; forward SIGUSR1 to 1");
}

TEST(JobPolicy, ANodeThatIsToldToEndLeavesIfTheOthersMayGoOn) {
  struct Case {
    std::string name;
    JobSetting setting;
    int num_others, source;  ///< The number of nodes besides the head's own; the id of the node that gets the signal.
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
    JobScene scene(one.setting);
    scene.decide();
    for (int i = 1; i <= one.num_others; ++i) scene.come(fmt::format("n{}", i));
    scene.prepared(0);
    EXPECT_EQ(scene.event(one.source, {.kind = Kind::kSignal, .value = SIGTERM}), one.orders);
    EXPECT_EQ(scene->is_stopping(), one.is_stopping);
  }
}

TEST(JobPolicy, ANodeThatLeavesIsToldSoAfterItsRanksHaveEnded) {
  JobScene scene({.min = 1, .max = 2});
  scene.decide();
  const int b = scene.come("b");
  scene.prepared(0);
  for (const int id : {0, b}) scene.started(id, id);
  EXPECT_EQ(scene.event(b, {.kind = Kind::kSignal, .value = SIGUSR2}), "SIGUSR2 to 0; SIGUSR2 to 1");
  EXPECT_EQ(scene.event(b, {.kind = Kind::kSignal, .value = SIGUSR2}), "") << "it is leaving already";
  for (const int id : {0, b}) scene.exit(id, id, SIGUSR2);
  EXPECT_EQ(scene.end(b), "");
  EXPECT_EQ(scene.end(0),
            "end 1 with 140; say yoke run: host b received SIGUSR2 and leaves the job; stopped the 2 other ranks; "
            "starting all ranks "
            "again; forget failure; begin 1 after 1; prepare 0 at '10.0.0.1'");
  EXPECT_EQ(scene.lose(b), "") << "that it has gone is no news";
}

TEST(JobPolicy, OnlyTheFirstLeavesWhenNoMoreCanBeMissed) {
  JobScene scene({.min = 2, .max = 3});
  scene.decide();
  const int b = scene.come("b"), c = scene.come("c");
  scene.prepared(0);
  scene.event(b, {.kind = Kind::kSignal, .value = SIGTERM});
  EXPECT_FALSE(scene->is_stopping());
  scene.event(c, {.kind = Kind::kSignal, .value = SIGTERM});
  EXPECT_TRUE(scene->is_stopping()) << "two are needed: the job ends";
}

/// A scheduler that ends the job signals the launchers of all nodes. No node may leave the job because of that.
TEST(JobPolicy, NobodyLeavesAJobThatIsEnding) {
  JobScene scene({.min = 1, .max = 2});
  scene.decide();
  const int b = scene.come("b");
  scene.prepared(0);
  for (const int id : {0, b}) scene.started(id, id);
  EXPECT_EQ(scene.after(scene->on_signal(SIGTERM, scene.now)), "SIGTERM to 0; SIGTERM to 1");
  EXPECT_EQ(scene.event(b, {.kind = Kind::kSignal, .value = SIGTERM}), "") << "it is the same request";
  for (const int id : {0, b}) scene.exit(id, id, SIGTERM);
  scene.end(b);
  EXPECT_EQ(scene.end(0), "finish: yoke run: SIGTERM; stopped 2 ranks") << "b ends with the job's status";
}

TEST(JobPolicy, TheHeadCannotDoWithoutItsOwnGuardian) {
  for (const int64_t min : {1, 2}) {
    JobScene scene({.min = min, .max = 2, .restarts = {5}});
    scene.decide();
    scene.come("b");
    scene.prepared(0);
    EXPECT_EQ(scene.event(0, {.kind = Kind::kGuardianLost, .pid = 9}), "kill 0; kill 1");
    scene.end(0);
    EXPECT_EQ(scene.end(1),
              "finish: yoke run: the process that starts and watches the ranks (pid 9 on head) was killed");
    EXPECT_EQ(scene.exit_code(), 75);
  }
}

TEST(JobPolicy, ANodeWithoutItsGuardianIsDismissedFromAnElasticJob) {
  JobScene scene({.min = 1, .max = 2});
  scene.decide();
  const int b = scene.come("b");
  scene.prepared(0);
  EXPECT_EQ(scene.event(b, {.kind = Kind::kGuardianLost, .pid = 9}), "SIGTERM to 0; SIGTERM to 1");
  scene.end(b);
  EXPECT_EQ(scene.end(0),
            "end 1 with 75; say yoke run: the process that starts and watches the ranks (pid 9 on b) was killed; "
            "starting all ranks again; "
            "forget failure; begin 1 after 1; prepare 0 at '10.0.0.1'");
}

TEST(JobPolicy, NodesThatContradictTheHeadAreRefused) {
  struct Case {
    NodeInfo info;
    std::string why;  ///< Why the node must be refused; empty if it must be accepted.
  };
  const Case kCases[] = {
      {{.host = "b"}, ""},
      {{.host = "b", .nnodes = "2", .restarts = {3}}, ""},
      {{.host = "b", .nnodes = "3"}, "the node has --nnodes 3, but the head node has 2"},
      {{.host = "b", .nnodes = "2", .restarts = {1}}, "the node has --max-restarts 1, but the head node has 3"},
      {{.host = "b", .nnodes = "2"}, "the node has --max-restarts 0, but the head node has 3"},
      {{.host = "b", .nnodes = "2", .restarts = {3}, .replacements = 2},
       "the node has --replace 2, but the head node has 0"},
      {{.host = "b", .nnodes = "1", .num_spares = 1}, "the node has --spares 1, but the head node has 0"}};
  for (const auto& one : kCases) {
    JobScene scene({.min = 2, .max = 2, .restarts = {3}});
    scene.decide();
    const auto orders = scene.ready(scene->add_node(), one.info);
    EXPECT_EQ(orders, one.why.empty() ? "begin 2 after 0; prepare 0 at '10.0.0.1'"
                                      : "say yoke run: refused host b: " + one.why +
                                            "; end 1 with 77: yoke run: the head node refuses this node: " + one.why);
    EXPECT_EQ(scene.state(1), one.why.empty() ? "preparing" : "left");
  }
}

TEST(JobPolicy, TheSecondNodeOfARankIsRefusedUnlessItReturns) {
  for (const bool is_return : {false, true}) {
    JobScene scene({.min = 3, .max = 3});
    scene.decide();
    for (const bool is_second : {false, true}) {
      auto info = JobScene::info_of(is_second ? "c" : "b");
      info.node_rank = 1;
      info.is_return = is_second && is_return;
      scene.ready(scene->add_node(), info);
    }
    const auto heard = [&](int) { return scene.now + seconds(1); };
    EXPECT_EQ(scene.after(scene->on_heard([&](int) { return scene.now; })), "") << "the first may be gone";
    EXPECT_EQ(scene.after(scene->on_heard(heard)),
              is_return ? ""
                        : "say yoke run: refused host c: --node-rank 1 is taken by b; end 2 with 77: yoke run: the "
                          "head node refuses this node: --node-rank 1 is taken by b");
    EXPECT_EQ(scene.after(scene->on_heard(heard)), "") << "once";
  }
}

TEST(JobPolicy, TheStoreEndsAfterTheRanksOfAllNodes) {
  JobScene scene({.min = 2, .max = 2});
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
    JobScene scene({.min = 3, .max = 3, .quiet = quiet});
    scene.decide();
    scene.come("b");
    EXPECT_EQ(scene.wait(milliseconds(1999)), "");
    EXPECT_EQ(scene.wait(milliseconds(1)),
              quiet ? "" : "say yoke run: waiting for 3 nodes, of which 2 joined so far: head, b");
    EXPECT_EQ(scene.wait(seconds(590)), "") << "once";
    EXPECT_EQ(scene.wait(seconds(8)),
              "finish: yoke run: only 2 of at least 3 nodes joined within 10:00 (head, b); start the missing "
              "ones, or raise join_timeout in --rdzv-conf");
    EXPECT_EQ(scene.exit_code(), 124);
  }
}

TEST(JobPolicy, WhoIsMissingIsNamed) {
  JobScene listed({.min = 2, .max = 2, .hosts = {"a", "b", "c"}, .restarts = {1}, .spares = 1});
  listed.decide();
  for (const size_t host : {0, 1, 2}) {
    const int id = listed->on_agent_started(host);
    if (host != 1) listed.ready(id, {.host = "x", .address = "10.0.0.1"});
  }
  EXPECT_EQ(listed.wait(seconds(2)),
            "say yoke run: waiting for 2 nodes and 1 spare, of which 2 joined so far: a, c; missing: b");

  JobScene by_hand({.min = 4, .max = 4});
  by_hand.decide();
  const auto come = [&](const char* host, int64_t rank) {
    const int id = by_hand->add_node();
    by_hand.ready(id, {.host = host, .address = "10.0.0.9", .node_rank = rank});
    return id;
  };
  come("b", 1);
  const int c = come("c", 2);
  EXPECT_EQ(by_hand.event(c, {.kind = Kind::kLost, .text = "it is off"}),
            "say yoke run: lost host c: it is off; forget 2");
  EXPECT_EQ(by_hand.wait(seconds(2)),
            "say yoke run: waiting for 4 nodes, of which 2 joined so far: head, b; missing: node ranks 2, 3")
      << "the head has no --node-rank, and takes 0";
}

TEST(JobPolicy, ANodeThatRefusesItsStartKeepsTheOthersFromStarting) {
  JobScene scene({.min = 2, .max = 2});
  scene.decide();
  scene.come("b");
  scene->on_node_event(0, {.kind = Kind::kPrepared, .value = 4000}, scene.now);
  const auto first = scene->decide(scene.now, scene.screen);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(text_of(first[0]), "start 0 as node 0 of 2, rank 0 of 2, port 4000");
  EXPECT_EQ(scene.phase(), Phase::kStarting);
  EXPECT_EQ(scene.event(0, {.kind = Kind::kRefused, .value = 71, .text = "no room"}),
            "SIGTERM to 1; finish: yoke run: no room")
      << "b has no rank yet, and ignores the signal";
  EXPECT_EQ(scene.exit_code(), 71);
}

TEST(JobPolicy, RanksAreNumberedOverTheNodes) {
  JobScene scene({.min = 3, .max = 3, .num_ranks = 2});
  scene.decide();
  auto info = JobScene::info_of("b");
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
    JobScene scene({.min = 2, .max = 2, .hosts = {"a", "b"}});
    scene.decide();
    for (const size_t host : {0, 1}) {
      auto info = JobScene::info_of("x");
      if (host == 0 || !is_far) info.address = "127.0.0.1";
      scene.ready(scene->on_agent_started(host), info);
    }
    EXPECT_EQ(scene.exit_code(), is_far ? 64 : 0);
    EXPECT_EQ(scene.phase(), is_far ? Phase::kOver : Phase::kPreparing);
  }
}

TEST(JobPolicy, OutputIsWaitedForUnlessTheUserWantsTheEnd) {
  JobScene scene({});
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

  JobScene stopped({});
  stopped.decide();
  stopped.prepared(0);
  stopped.started(0, 0);
  stopped.after(stopped->on_signal(SIGTERM, stopped.now));
  stopped.exit(0, 0, SIGTERM);
  stopped.event(0, {.kind = Kind::kEnded});
  EXPECT_EQ(stopped->next_time(), stopped.now + seconds(1));
  EXPECT_EQ(stopped.wait(milliseconds(999)), "");
  EXPECT_EQ(stopped.wait(milliseconds(1)), "finish: yoke run: SIGTERM; stopped 1 rank")
      << "its output was not all read";
}

TEST(JobPolicy, NodesThatGoAtTheEndOfTheJobAreNoNews) {
  JobScene scene({.min = 2, .max = 2});
  bring_to(scene, Phase::kEnding);
  EXPECT_EQ(scene.lose(1), "");
  EXPECT_EQ(scene.exit_code(), 0);
}

TEST(JobPolicy, CtrlCIsLeftToARankThatIsAlone) {
  JobScene scene({});
  scene.decide();
  scene.prepared(0);
  scene.started(0, 0);
  EXPECT_EQ(scene.after(scene->on_interrupt_at_rank(scene.now)), "");
  EXPECT_FALSE(scene->is_stopping());
  EXPECT_EQ(scene.after(scene->on_signal(SIGINT, scene.now)), "SIGINT to 0") << "not from the terminal";
}

}  // namespace
}  // namespace yoke::launch
