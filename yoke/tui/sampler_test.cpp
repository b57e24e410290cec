#include "yoke/tui/sampler.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <condition_variable>
#include <functional>
#include <mutex>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/tui/machine_test.h"

namespace yoke::tui {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

/// Calls `work(number of the sample, what is wanted)` for each sample.
class FakeSource : public device::Source {
 public:
  using Work = std::function<device::Snapshot(int, const device::Want&)>;
  explicit FakeSource(Work work) : work_(std::move(work)) {}

  device::Snapshot sample(const device::Want& want) override { return work_(count_++, want); }

 private:
  Work work_;
  int count_ = 0;
};

Sample wait_for_sample(Sampler& sampler) {
  for (;;) {
    pollfd ready{sampler.ready_fd(), POLLIN, 0};
    if (poll(&ready, 1, 20'000) <= 0) throw std::runtime_error("no sample came");
    if (auto sample = sampler.take()) return *std::move(sample);
  }
}

SamplerOptions every(milliseconds interval) { return {.interval = interval, .sysroot = "/nonexistent"}; }

TEST(Sampler, KeepsComing) {
  FakeSource source([](int number, const auto&) {
    auto snapshot = make_sample(1).snapshot;
    snapshot.devices[0].index = number;
    return snapshot;
  });
  Sampler sampler(source, every(milliseconds(1)), {});
  int64_t last = -1;
  while (last < 5) {
    const auto index = wait_for_sample(sampler).snapshot.devices[0].index;
    EXPECT_GT(index, last);
    last = index;
  }
}

TEST(Sampler, TakingDoesNotWaitForASourceThatHangs) {
  std::mutex mutex;
  std::condition_variable changed;
  bool may_go_on = false;
  FakeSource source([&](int number, const auto&) {
    std::unique_lock lock(mutex);
    if (number == 1) changed.wait(lock, [&] { return may_go_on; });
    return make_sample(1).snapshot;
  });
  Sampler sampler(source, every(milliseconds(1)), {});
  wait_for_sample(sampler);
  pollfd ready{sampler.ready_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 20), 0);
  EXPECT_EQ(sampler.take(), std::nullopt);
  sampler.set_want({.devices = device::Want::everything()});
  {
    const std::lock_guard lock(mutex);
    may_go_on = true;
  }
  changed.notify_all();
  wait_for_sample(sampler);
}

TEST(Sampler, WhoWantsMoreGetsItAtOnce) {
  FakeSource source([](int, const device::Want& want) {
    auto snapshot = make_sample(1, want.processes ? 3 : 0).snapshot;
    return snapshot;
  });
  WantOfPage want;
  want.devices.processes = false;
  Sampler sampler(source, every(hours(1)), want);
  const auto first = wait_for_sample(sampler);
  EXPECT_FALSE(first.has_processes);
  EXPECT_TRUE(first.snapshot.devices[0].processes.empty());
  want.devices.processes = true;
  sampler.set_want(want);
  const auto second = wait_for_sample(sampler);
  EXPECT_TRUE(second.has_processes);
  EXPECT_EQ(second.snapshot.devices[0].processes.size(), 3u);
  want.devices.processes = false;
  sampler.set_want(want);
  pollfd ready{sampler.ready_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 20), 0) << "less can wait";
}

TEST(Sampler, SaysWhatWentWrong) {
  FakeSource source([](int, const auto&) -> device::Snapshot { throw std::runtime_error("out of luck"); });
  Sampler sampler(source, every(milliseconds(1)), {});
  EXPECT_STREQ(test::error_of([&] { wait_for_sample(sampler); }).what(), "sampling the devices: out of luck");
}

TEST(Sampler, PlaysARecordingAtItsOwnPaceToItsEnd) {
  FakeSource source([](int number, const auto&) {
    auto snapshot = make_sample(1).snapshot;
    snapshot.time += milliseconds(60) * std::min(number, 2);  // three different times; the last one is repeated
    return snapshot;
  });
  const auto start = std::chrono::steady_clock::now();
  Sampler sampler(source, {.interval = hours(1), .is_recording = true}, {});
  Sample sample;
  do {
    sample = wait_for_sample(sampler);
  } while (!sample.is_last);
  EXPECT_EQ(sample.snapshot.time, kNoon + milliseconds(120));
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(120));
}

TEST(AncestorReader, ReadsTheParentsOfProcesses) {
  auto sample = make_sample(1, 1);
  auto& info = sample.snapshot.devices[0].processes[0].info;
  info.parent_pid = getpid();
  AncestorReader reader("/proc");
  const auto processes = reader.read(sample.snapshot, milliseconds(20'000));
  ASSERT_TRUE(processes.contains(getpid()));
  EXPECT_EQ(processes.at(getpid()).parent_pid, getppid());
  info.parent_pid = 1 << 22;  // no process has this PID
  EXPECT_FALSE(reader.read(sample.snapshot, milliseconds(20'000)).contains(getpid()));
}

}  // namespace
}  // namespace yoke::tui
