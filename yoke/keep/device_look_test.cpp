#include "yoke/keep/device_look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "yoke/base/error.h"

namespace yoke::keep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Says in which process the devices were read, and how long drivers might take.
struct TracingSource : device::Source {
  explicit TracingSource(const device::SourceOptions& source_options) : options(source_options) {}
  device::Snapshot sample(const device::Want& /*want*/) override {
    device::Snapshot snapshot;
    snapshot.host = std::to_string(getpid()) + (options.with_cpu ? " with the CPU" : "");
    snapshot.devices.push_back({.index = options.deadline.count(), .vendor = device::Vendor::kNvidia});
    return snapshot;
  }
  device::SourceOptions options;
};

class KeepDeviceLook : public testing::Test {
 protected:
  KeepDeviceLook() {
    options_.open = [](const device::SourceOptions& options) { return std::make_unique<TracingSource>(options); };
  }
  device::Snapshot silent() const {
    device::Snapshot snapshot;
    snapshot.devices.push_back({.index = 3, .vendor = device::Vendor::kNvidia, .state = device::State::kNoAnswer});
    return snapshot;
  }

  DeviceLookOptions options_;
  std::vector<std::string> told_;
  const Tell tell_ = [this](Told what, const std::string& text) {
    EXPECT_EQ(what, Told::kNews);
    told_.push_back(text);
  };
};

TEST_F(KeepDeviceLook, ReadsInAChildOnce) {
  DeviceLook look(options_, tell_);
  const auto first = look.read({}), second = look.read({});
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(first->host.ends_with(" with the CPU"));
  EXPECT_NE(first->host, second->host) << "each look has a child of its own";
  EXPECT_FALSE(first->host.starts_with(std::to_string(getpid()) + " "));
}

TEST_F(KeepDeviceLook, WhoWaitsKeepsTheDriversOpen) {
  program::SignalMessages signals;
  DeviceLook look(options_, tell_);
  look.begin_to_wait({.signals = signals, .in_child = [] {}, .at_end = {}});
  const auto first = look.read({}), second = look.read({}), named = look.read({"0"});
  ASSERT_TRUE(first && second && named);
  EXPECT_EQ(first->host, second->host);
  EXPECT_NE(second->host, named->host) << "it reads others now";
  EXPECT_FALSE(first->host.ends_with(" with the CPU"));
  raise(SIGTERM);
  EXPECT_FALSE(look.read({"0"}));
  EXPECT_EQ(look.status(), 128 + SIGTERM);
  program::DeviceReader::reap(look.end());
}

TEST_F(KeepDeviceLook, AReaderThatFailsIsReplacedByAChild) {
  options_.open = [](const device::SourceOptions& options) -> std::unique_ptr<device::Source> {
    if (!options.with_cpu) throw Error(ErrorCode::kUnavailable, "no driver");
    return std::make_unique<TracingSource>(options);
  };
  program::SignalMessages signals;
  DeviceLook look(options_, tell_);
  look.begin_to_wait({.signals = signals, .in_child = [] {}, .at_end = {}});
  const auto snapshot = look.read({});
  ASSERT_TRUE(snapshot);
  EXPECT_TRUE(snapshot->host.ends_with(" with the CPU"));
}

TEST_F(KeepDeviceLook, SlowDriversGetMoreTimeOnce) {
  DeviceLook look(options_, tell_);
  EXPECT_FALSE(look.grant_more_time(*look.read({}))) << "all have answered";
  EXPECT_TRUE(look.grant_more_time(silent()));
  EXPECT_EQ(look.read({})->devices[0].index, 10'000) << "the deadline in milliseconds";
  EXPECT_FALSE(look.grant_more_time(silent()));
  EXPECT_EQ(look.read({})->devices[0].index, 1'000) << "it does not sleep, and is not waited for again";
  EXPECT_THAT(told_, ElementsAre(testing::StartsWith("device 3 did not answer within 1 s; waiting for up to 10 s")));
}

TEST_F(KeepDeviceLook, ADeadlineOfTheUsersOwnIsKept) {
  options_.deadline_s = 2.5;
  DeviceLook look(options_, tell_);
  EXPECT_FALSE(look.grant_more_time(silent()));
  EXPECT_EQ(look.read({})->devices[0].index, 2'500);
  EXPECT_THAT(told_, IsEmpty());
}

}  // namespace
}  // namespace yoke::keep
