// Tests how devices are acquired: with real locks and processes, on devices that are pretended.
#include "yoke/keep/acquire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "yoke/contract/variables.h"
#include "yoke/keep/machine_test.h"

namespace yoke::keep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// The refusal that a request gets.
Refused refused(TestMachine& machine, const AcquireOptions& options) {
  try {
    machine.acquire(options);
  } catch (const Refused& refusal) {
    return refusal;
  }
  ADD_FAILURE() << "it was not refused";
  return {ErrorCode::kInternal, {}};
}

TEST(KeepAcquire, TakesDevicesAndSaysWhichVariablesShowThem) {
  TestMachine machine;
  auto options = machine.wish(1);
  options.request.length = std::chrono::hours(1);
  const auto acquired = machine.acquire(options);
  EXPECT_EQ(acquired.status, 0);
  EXPECT_THAT(acquired.allocation.ids, ElementsAre("0"));
  EXPECT_THAT(acquired.assignments, ElementsAre(device::Assignment{"CUDA_VISIBLE_DEVICES", "GPU-0"}));
  EXPECT_THAT(acquired.watch.ids, ElementsAre("0"));
  EXPECT_THAT(machine.held(), ElementsAre("GPU-0"));
  const auto note = machine.survey().notes.at(0).note;
  ASSERT_TRUE(note);
  EXPECT_EQ(note->purpose, "test");
  EXPECT_EQ(note->until, note->since + std::chrono::hours(1));
  EXPECT_EQ(acquired.ended_reader, -1) << "it has not waited";
}

TEST(KeepAcquire, ADryRequestTakesNothingAndHasReasons) {
  TestMachine machine;
  auto options = machine.wish(2);
  options.request.is_dry = true;
  const auto acquired = machine.acquire(options);
  EXPECT_FALSE(acquired.allocation.claim);
  EXPECT_THAT(acquired.allocation.ids, ElementsAre("0", "1"));
  EXPECT_THAT(machine.held(), IsEmpty());
  EXPECT_EQ(machine.told(Told::kReason), acquired.allocation.sentences);
  EXPECT_FALSE(acquired.allocation.sentences.empty());
}

TEST(KeepAcquire, TakesOnlyNamedDevices) {
  TestMachine machine(3);
  auto options = machine.wish(0);
  options.device.chosen = {"1-2"};
  EXPECT_THAT(machine.acquire(options).allocation.ids, ElementsAre("1", "2"));
  options.device.chosen = {"7"};
  EXPECT_EQ(test::message_of([&] { machine.acquire(options); }, ErrorCode::kNotFound),
            "this machine has no device 7; `yoke devices` lists those that it has");
  machine.snapshot.devices.clear();
  EXPECT_EQ(test::message_of([&] { machine.acquire(machine.wish(1)); }, ErrorCode::kNotFound),
            "no GPU; there is nothing to claim");
}

TEST(KeepAcquire, ARefusalSaysWhyAndWhatNext) {
  TestMachine machine;
  const auto first = machine.acquire(machine.wish(2));
  const auto full = refused(machine, machine.wish(1));
  EXPECT_EQ(full.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(full.refusal.why, AllOf(StartsWith("1 device is wanted, and 0 are free: device 0 is claimed by"),
                                      Not(HasSubstr("--wait"))));
  EXPECT_EQ(full.refusal.next, "use --wait to queue, or see `yoke claims`");
  EXPECT_EQ(full.what(), full.refusal.why + "; " + full.refusal.next);
  const auto hopeless = refused(machine, machine.wish(3, true));
  EXPECT_EQ(hopeless.code(), ErrorCode::kFailedPrecondition) << "waiting would not help";
  EXPECT_EQ(hopeless.refusal.next, "");
  EXPECT_THAT(machine.told(Told::kNews), IsEmpty());
}

TEST(KeepAcquire, ALockThatCannotBeUsedIsNamed) {
  TestMachine machine;
  mkdir(machine.folder.path(claim::lock_name("GPU-0")).c_str(), 0755);
  const auto refusal = refused(machine, machine.wish(2)).refusal;
  EXPECT_THAT(refusal.why, AllOf(HasSubstr("device 0 is without a lock, because"), HasSubstr("yoke-"),
                                 HasSubstr("; waiting does not help until that is mended")));
  EXPECT_EQ(refusal.next, "");
  EXPECT_THAT(machine.acquire(machine.wish(1)).allocation.ids, ElementsAre("1"));
}

TEST(KeepAcquire, WhoWaitsGetsTheDevicesOfAHolderThatWasKilled) {
  TestMachine machine;
  Other holder(machine, 2);
  ASSERT_TRUE(holder.is_ready());
  machine.on_news = [&](const std::string& text) {
    EXPECT_THAT(text, AllOf(StartsWith("waiting: 1 device is wanted"), Not(HasSubstr("--wait"))));
    raise(SIGUSR1);  // for programs: it does not end the wait
    holder.end();
  };
  const auto acquired = machine.acquire(machine.wish(1, true));
  EXPECT_EQ(acquired.status, 0);
  EXPECT_THAT(acquired.allocation.ids, ElementsAre("0"));
  EXPECT_THAT(machine.held(), ElementsAre("GPU-0"));
  EXPECT_THAT(machine.survey().tickets, IsEmpty());
  EXPECT_GE(acquired.ended_reader, 0) << "drivers were kept open";
  program::DeviceReader::reap(acquired.ended_reader);
}

TEST(KeepAcquire, ASignalEndsTheWait) {
  TestMachine machine;
  const auto first = machine.acquire(machine.wish(2));
  for (const int signal : {SIGINT, SIGTERM}) {
    machine.on_news = [&](const std::string& /*text*/) { raise(signal); };
    const auto acquired = machine.acquire(machine.wish(2, true));
    EXPECT_EQ(acquired.status, 128 + signal);
    EXPECT_FALSE(acquired.allocation.claim);
    EXPECT_THAT(machine.survey().tickets, IsEmpty()) << "it has left the queue";
  }
}

TEST(KeepAcquire, TheWaitHasALimit) {
  TestMachine machine;
  const auto first = machine.acquire(machine.wish(2));
  auto options = machine.wish(2, true);
  options.wait_limit = std::chrono::seconds(0);
  EXPECT_THAT(test::message_of([&] { machine.acquire(options); }, ErrorCode::kTimeout),
              AllOf(StartsWith("waited for "), HasSubstr(" without success: 2 devices are wanted, and 0 are free"),
                    Not(HasSubstr("--wait"))));
  EXPECT_THAT(machine.survey().tickets, IsEmpty());
}

TEST(KeepAcquire, TwoProgramsThatWaitComeInTheirOrder) {
  TestMachine machine;
  Other holder(machine, 2);
  ASSERT_TRUE(holder.is_ready());
  const auto first_pid = holder.pid();
  Other before([&](const std::function<void()>& ready) {
    machine.on_news = [&](const std::string& /*text*/) { ready(); };
    const auto acquired = machine.acquire(machine.wish(2, true));
    for (;;) pause();
  });
  ASSERT_TRUE(before.is_ready());
  machine.on_news = [&](const std::string& text) {
    if (text.starts_with("position 2 in the queue; claimed by ")) holder.end();
    if (text.starts_with("position 1 in the queue")) before.end();
  };
  const auto acquired = machine.acquire(machine.wish(2, true));
  EXPECT_THAT(acquired.allocation.ids, ElementsAre("0", "1"));
  program::DeviceReader::reap(acquired.ended_reader);
  const auto news = machine.told(Told::kNews);
  ASSERT_EQ(news.size(), 3U);
  EXPECT_THAT(news[0], StartsWith("waiting: "));
  EXPECT_THAT(news[1], HasSubstr(fmt::format("(pid {})", first_pid)));
  EXPECT_THAT(news[2], StartsWith("position 1 in the queue"));
}

TEST(KeepAcquire, WhatAChildCannotReadIsAnErrorHere) {
  TestMachine machine;
  auto options = machine.wish(1);
  options.device.open = [](const device::SourceOptions&) -> std::unique_ptr<device::Source> {
    throw Error(ErrorCode::kPermissionDenied, "the driver refuses uid 1007");
  };
  EXPECT_EQ(test::message_of([&] { machine.acquire(options); }, ErrorCode::kPermissionDenied),
            "the driver refuses uid 1007");
  options.device.open = [](const device::SourceOptions&) -> std::unique_ptr<device::Source> {
    raise(SIGKILL);
    return nullptr;
  };
  EXPECT_EQ(machine.acquire(options).status, 128 + SIGKILL);
}

TEST(KeepAcquire, ADriverThatSleepsGetsMoreTime) {
  TestMachine machine(1);
  auto options = machine.wish(1);
  options.device.open = [devices = machine.snapshot](const device::SourceOptions& source) mutable {
    if (source.deadline <= std::chrono::seconds(1)) devices.devices[0].state = device::State::kNoAnswer;
    return std::make_unique<SnapshotSource>(devices, source.selection);
  };
  EXPECT_THAT(machine.acquire(options).allocation.ids, ElementsAre("0"));
  EXPECT_THAT(machine.told(Told::kNews),
              ElementsAre(StartsWith("device 0 did not answer within 1 s; waiting for up to 10 s, because a GPU")));
  options.device.deadline_s = 0.5;  // its user has chosen
  EXPECT_THAT(refused(machine, options).refusal.why, HasSubstr("only 0 of 1 can be claimed"));
  EXPECT_EQ(machine.told(Told::kNews).size(), 1U);
}

TEST(KeepAcquire, UnderAClaimItTakesOfThatOneAlone) {
  TestMachine machine(3);
  const auto outer = machine.acquire(machine.wish(2));
  const pid_t child = fork();
  if (child == 0) {
    auto options = machine.wish(1);
    options.inherits = true;
    const auto inner = machine.acquire(options);
    const bool is_right = inner.held == outer.allocation.ids && inner.allocation.ids == std::vector<std::string>{"0"} &&
                          inner.watch.ids == inner.held && inner.allocation.claim->is_shared();
    bool is_refused = false;
    try {
      options.request.wish.num_devices = 3;
      machine.acquire(options);
    } catch (const Error& error) {
      is_refused = error.code() == ErrorCode::kFailedPrecondition;
    }
    _exit(is_right && is_refused ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(machine.held(), ElementsAre("GPU-0", "GPU-1"));
}

TEST(KeepAcquire, AWholeDeviceHasNoLimitOfAProgramOutside) {
  TestMachine machine;
  machine.environment.set(variable::kDeviceMemory, "1000");
  EXPECT_THAT(machine.acquire(machine.wish(1)).assignments,
              Contains(device::Assignment{variable::kDeviceMemory, std::nullopt}));
}

}  // namespace
}  // namespace yoke::keep
