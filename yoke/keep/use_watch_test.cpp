#include "yoke/keep/use_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "yoke/keep/machine_test.h"

namespace yoke::keep {
namespace {

using claim::IdleStep;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// Waits for the next thing that a watch has to do, and returns what follows.
IdleStep next_step(UseWatch& watch) {
  for (;;) {
    const auto step = watch.look();
    if (step != IdleStep::kNone) return step;
    pollfd news{watch.fd(), POLLIN, 0};
    poll(&news, 1, watch.milliseconds_left());
  }
}

TEST(KeepUseWatch, WarnsAndThenEndsAClaimThatIsIdle) {
  TestMachine machine;
  machine.site.config.idle = {.warn = seconds(1), .end = seconds(2)};
  machine.site.config.is_own_idle_end = true;
  auto acquired = machine.acquire(machine.wish(2));
  UseWatch watch(*acquired.allocation.claim, acquired.watch);
  EXPECT_EQ(watch.devices(), "devices 0, 1");
  EXPECT_EQ(next_step(watch), IdleStep::kWarn);
  EXPECT_GT(watch.reader(), 0);
  EXPECT_THAT(watch.warning(),
              AllOf(StartsWith("devices 0, 1 have not been used for "), HasSubstr(" (test); your own configuration"),
                    HasSubstr("unless they are used; `yoke release "), HasSubstr(" --force` gives them to others")));
  EXPECT_EQ(next_step(watch), IdleStep::kEnd);
  EXPECT_THAT(watch.farewell(), HasSubstr("ends the claim"));
  const auto activity = acquired.allocation.claim->read().activity;
  ASSERT_TRUE(activity);
  EXPECT_EQ(activity->used_at.size(), 2U);
}

TEST(KeepUseWatch, UseKeepsAClaim) {
  TestMachine machine(1);
  auto& device = machine.snapshot.devices[0];
  device.state = device::State::kBusy;
  device.readings.utilization_percent = 50;
  device.processes.push_back({.pid = getpid(), .type = "compute"});
  machine.site.config.idle = {.end = seconds(1)};
  auto options = machine.wish(1);
  options.request.takes_used = true;
  auto acquired = machine.acquire(options);
  UseWatch watch(*acquired.allocation.claim, acquired.watch);
  const auto begin = acquired.allocation.claim->read().activity.value().looked_at;
  while (acquired.allocation.claim->read().activity->looked_at < begin + seconds(2)) {
    EXPECT_EQ(watch.look(), IdleStep::kNone);
    pollfd news{watch.fd(), POLLIN, 0};
    poll(&news, 1, watch.milliseconds_left());
  }
}

TEST(KeepUseWatch, WithoutASourceNothingIsLookedAt) {
  TestMachine machine;
  auto acquired = machine.acquire(machine.wish(1));
  UseWatch watch(*acquired.allocation.claim, {.ids = {"0"}});
  EXPECT_EQ(watch.milliseconds_left(), -1);
  EXPECT_EQ(watch.look(), IdleStep::kNone);
  EXPECT_EQ(watch.fd(), -1);
  EXPECT_FALSE(acquired.allocation.claim->read().activity);
}

}  // namespace
}  // namespace yoke::keep
