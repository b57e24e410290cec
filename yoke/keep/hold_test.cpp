// Tests processes that hold devices without a program.
#include "yoke/keep/hold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include "tests/support/message_of.h"
#include "yoke/keep/machine_test.h"

namespace yoke::keep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

UniqueFd pidfd_of(pid_t pid) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0U))); }

TEST(KeepHold, EndsWithTheProcess) {
  TestMachine machine;
  auto acquired = machine.acquire(machine.wish(1));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  program::SignalMessages messages;
  hold(acquired, messages, pidfd_of(child), machine.tell);
  waitpid(child, nullptr, 0);
  EXPECT_THAT(machine.held(), IsEmpty());
  EXPECT_THAT(machine.told(Told::kNews), IsEmpty()) << "nobody waits for these words";
}

TEST(KeepHold, EndsWithItsTimeAndSaysSoEverywhere) {
  TestMachine machine;
  auto options = machine.wish(2);
  options.request.length = std::chrono::seconds(0);
  auto acquired = machine.acquire(options);
  program::SignalMessages messages;
  hold(acquired, messages, {}, machine.tell);
  EXPECT_THAT(machine.held(), IsEmpty());
  const auto* const text =
      "the time of the claim is over (test); others may have devices 0, 1 now, although programs of a shell that was "
      "given "
      "them still see them";
  EXPECT_THAT(machine.told(Told::kNews), ElementsAre(text));
  EXPECT_THAT(machine.told(Told::kElsewhere), ElementsAre(text));
}

/// The process that holds the devices.
pid_t holder_of(const TestMachine& machine) {
  const auto survey = machine.survey();
  return survey.notes.size() == 1 ? static_cast<pid_t>(survey.notes[0].pid.value_or(-1)) : -1;
}

TEST(KeepHold, AHolderLivesOnOnceItsReportWasHeard) {
  TestMachine machine;
  auto holder = start_holder(machine.wish(2), machine.site, machine.environment, machine.tell,
                             [](const Acquired& acquired) { return acquired.assignments.at(0).value.value_or(""); });
  EXPECT_EQ(holder.status, 0);
  EXPECT_EQ(holder.report, "GPU-0,GPU-1");
  holder.confirm();
  const pid_t pid = holder_of(machine);
  ASSERT_GT(pid, 0);
  EXPECT_NE(pid, getpid());
  EXPECT_TRUE(machine.survey().notes[0].note->is_holder);
  kill(pid, SIGTERM);
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << "it was told of the release as soon as anybody could know of it";
  EXPECT_THAT(machine.held(), IsEmpty());
}

TEST(KeepHold, AHolderWhoseReportWasLostEnds) {
  TestMachine machine;
  pid_t pid = -1;
  {
    const auto holder = start_holder(machine.wish(1), machine.site, machine.environment, machine.tell,
                                     [](const Acquired&) { return ""; });
    pid = holder_of(machine);
    ASSERT_GT(pid, 0);
  }
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_THAT(machine.held(), IsEmpty());
}

TEST(KeepHold, WhatAHolderCannotDoIsAnErrorHere) {
  TestMachine machine;
  const auto start = [&](const AcquireOptions& options) {
    start_holder(options, machine.site, machine.environment, machine.tell, [](const Acquired&) { return ""; });
  };
  const auto first = machine.acquire(machine.wish(2));
  EXPECT_THAT(test::message_of([&] { start(machine.wish(1)); }, ErrorCode::kUnavailable),
              HasSubstr("1 device is wanted, and 0 are free"));
  auto adopting = machine.wish(0);
  adopting.adopted_pid = 0;
  EXPECT_EQ(test::message_of([&] { start(adopting); }, ErrorCode::kNotFound), "there is no process 0");
}

TEST(KeepHold, ThePurposeIsWithoutOptions) {
  EXPECT_EQ(purpose_of({"python", "train.py", "--key", "secret"}), "python train.py");
  EXPECT_EQ(purpose_of({}), "");
}

}  // namespace
}  // namespace yoke::keep
