// Tests programs that run under a claim, with real processes and locks.
#include "yoke/keep/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/keep/machine_test.h"

namespace yoke::keep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

int run_shell(TestMachine& machine, Acquired& acquired, const std::string& script) {
  return run(acquired, {"sh", "-c", script}, machine.environment, machine.tell);
}

TEST(KeepRun, TheProgramSeesItsDevicesAndGivesThemBack) {
  TestMachine machine;
  auto acquired = machine.acquire(machine.wish(2));
  EXPECT_EQ(run_shell(machine, acquired, "test \"$CUDA_VISIBLE_DEVICES\" = GPU-0,GPU-1 && exit 7"), 7);
  EXPECT_THAT(machine.held(), IsEmpty());
  EXPECT_THAT(machine.told(Told::kNews), IsEmpty());
  acquired = machine.acquire(machine.wish(1));
  EXPECT_EQ(run_shell(machine, acquired, "kill -KILL $$"), 128 + SIGKILL);
  EXPECT_THAT(machine.held(), IsEmpty());
}

TEST(KeepRun, AProgramThatCannotBeExecutedIsNamed) {
  TestMachine machine;
  auto acquired = machine.acquire(machine.wish(1));
  EXPECT_EQ(run(acquired, {"/nowhere/train\n"}, machine.environment, machine.tell), 127);
  EXPECT_THAT(machine.told(Told::kNews),
              ElementsAre(AllOf(StartsWith("cannot start /nowhere/train"),
                                testing::EndsWith(": No such file or directory"), testing::Not(HasSubstr("\n")))));
  EXPECT_THAT(machine.held(), IsEmpty());
}

TEST(KeepRun, SignalsArePassedOn) {
  TestMachine machine;
  auto acquired = machine.acquire(machine.wish(1));
  // A signal that another process sends to this one, as `kill` does.
  EXPECT_EQ(run_shell(machine, acquired, "kill -INT $PPID; exec sleep 1000"), 128 + SIGINT);
  EXPECT_THAT(machine.held(), IsEmpty());
  acquired = machine.acquire(machine.wish(1));
  EXPECT_EQ(run_shell(machine, acquired, "trap 'exit 5' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done"), 5);
}

TEST(KeepRun, AfterItsTimeTheProgramIsEndedWithAllThatItHasStarted) {
  const auto others = test::children_of(getpid());
  TestMachine machine;
  auto options = machine.wish(1);
  options.request.length = std::chrono::seconds(1);  // at once, the program may count as one that was told
  auto acquired = machine.acquire(options);
  EXPECT_EQ(run_shell(machine, acquired, "sleep 1000 & exec sleep 1000"), 128 + SIGTERM);
  EXPECT_THAT(machine.told(Told::kNews),
              ElementsAre("the time of the claim is over; the program gets SIGTERM, and SIGKILL in 10 s"));
  EXPECT_THAT(machine.held(), IsEmpty());
  EXPECT_EQ(test::children_of(getpid()), others);
}

TEST(KeepRun, AClaimThatIsReleasedByForceEndsWithAllProcesses) {
  const auto others = test::children_of(getpid());
  TestMachine machine;
  auto acquired = machine.acquire(machine.wish(1));
  auto note = acquired.allocation.claim->note();
  note.is_forced = true;
  ASSERT_TRUE(acquired.allocation.claim->write(note));
  // clock: in the tick in which it starts, a program counts as told (ProgramTree)
  EXPECT_EQ(run_shell(machine, acquired, "setsid sleep 1000 & sleep 0.05; kill -TERM $PPID; exec sleep 1000"),
            128 + SIGTERM);
  EXPECT_THAT(machine.told(Told::kNews),
              ElementsAre("the claim was released; the program gets SIGTERM, and SIGKILL in 10 s"));
  EXPECT_THAT(machine.held(), IsEmpty());
  EXPECT_EQ(test::children_of(getpid()), others) << "also what has a session of its own";
}

TEST(KeepRun, WhatAProgramLeavesBehindDoesNotKeepTheDevices) {
  TestMachine machine;
  auto acquired = machine.acquire(machine.wish(1));
  EXPECT_EQ(run_shell(machine, acquired, "sleep 1000 & true"), 0);
  EXPECT_THAT(machine.held(), IsEmpty());
  for (const auto child : test::children_of(getpid())) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

TEST(KeepRun, AnIdleClaimIsEndedAndItsUserIsToldElsewhere) {
  TestMachine machine;
  machine.site.config.idle = {.end = std::chrono::seconds(1)};
  auto acquired = machine.acquire(machine.wish(1));
  EXPECT_EQ(run_shell(machine, acquired, "exec sleep 1000"), 128 + SIGTERM);
  const auto why = "device 0 has not been used for 1 s (test), so this site ends the claim";
  EXPECT_THAT(machine.told(Told::kElsewhere), ElementsAre(StartsWith("device 0 has not been used for ")));
  EXPECT_THAT(machine.told(Told::kNews), ElementsAre(StartsWith("device 0 has not been used for ")));
  EXPECT_THAT(machine.told(Told::kNews)[0],
              HasSubstr(" (test), so this site ends the claim; the program gets SIGTERM"));
  EXPECT_THAT(machine.held(), IsEmpty()) << why;
}

TEST(KeepRun, IfTheKeeperIsKilledTheProgramGetsSigterm) {
  TestMachine machine;
  const auto ended = machine.folder.path("ended");
  Other keeper([&](const std::function<void()>& ready) {
    auto acquired = machine.acquire(machine.wish(1));
    machine.environment.set("ENDED", ended);
    ready();
    run_shell(machine, acquired, "trap 'echo yes > $ENDED; exit' TERM; echo > $ENDED; while :; do sleep 0.01; done");
  });
  ASSERT_TRUE(keeper.is_ready());
  ASSERT_TRUE(test::wait_until([&] { return test::slurp(ended) == "\n"; }));
  EXPECT_THAT(machine.held(), ElementsAre("GPU-0"));
  keeper.end();
  EXPECT_TRUE(test::wait_until([&] { return test::slurp(ended) == "yes\n" && machine.held().empty(); }));
}

}  // namespace
}  // namespace yoke::keep
