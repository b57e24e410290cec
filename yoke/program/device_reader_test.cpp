#include "yoke/program/device_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <stdexcept>

#include "tests/support/command.h"

namespace yoke::program {
namespace {

/// Gives `work(number of the sample)` each time.
class CountingSource : public device::Source {
 public:
  explicit CountingSource(std::function<device::Snapshot(int)> work) : work_(std::move(work)) {}
  device::Snapshot sample(const device::Want& /*want*/) override { return work_(count_++); }

 private:
  std::function<device::Snapshot(int)> work_;
  int count_ = 0;
};

DeviceReader::Options reading(std::function<device::Snapshot(int)> work) {
  return {.open = [work] { return std::make_unique<CountingSource>(work); }, .want = {}};
}

std::optional<device::Snapshot> ask(DeviceReader& reader) {
  reader.request();
  EXPECT_TRUE(reader.is_asked());
  pollfd news{reader.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&news, 1, -1), 1);
  auto snapshot = reader.take();
  EXPECT_FALSE(reader.is_asked());
  return snapshot;
}

TEST(ChildDeviceReader, AnswersAgainAndAgainFromOneSource) {
  DeviceReader reader(reading([](int number) {
    device::Snapshot snapshot;
    snapshot.host = std::to_string(number);
    snapshot.devices.resize(1);
    return snapshot;
  }));
  for (const char* number : {"0", "1", "2"}) {
    const auto snapshot = ask(reader);
    ASSERT_TRUE(snapshot);
    EXPECT_EQ(snapshot->host, number);
    EXPECT_EQ(snapshot->devices.size(), 1U);
  }
}

TEST(ChildDeviceReader, TheDriversAreInAChildThatHasNoDescriptorOfThisProcess) {
  const UniqueFd lock(open("/dev/null", O_RDONLY));
  const int copy = fcntl(lock.value(), F_DUPFD, 100);  // not close-on-exec, as the lock of a claim
  const UniqueFd owner(copy);
  DeviceReader reader(reading([copy](int) {
    device::Snapshot snapshot;
    snapshot.host = std::to_string(getpid()) + (fcntl(copy, F_GETFD) < 0 ? "" : " has the descriptor");
    return snapshot;
  }));
  const auto snapshot = ask(reader);
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->host, std::to_string(reader.pid()));
}

TEST(ChildDeviceReader, AFailureIsNoAnswer) {
  DeviceReader reader(reading([](int number) {
    if (number == 1) throw std::runtime_error("the driver is gone");
    return device::Snapshot();
  }));
  EXPECT_TRUE(ask(reader));
  EXPECT_FALSE(ask(reader));
  DeviceReader closed(
      {.open = []() -> std::unique_ptr<device::Source> { throw std::runtime_error("no driver"); }, .want = {}});
  EXPECT_FALSE(ask(closed));
}

TEST(ChildDeviceReader, EndKillsAChildThatADriverHolds) {
  DeviceReader reader(reading([](int) -> device::Snapshot {
    for (;;) pause();
  }));
  const pid_t child = reader.pid();
  reader.request();
  EXPECT_EQ(reader.end(), child);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  DeviceReader::reap(-1);
}

TEST(ChildDeviceReader, TheChildEndsWhenThisProcessWasKilled) {
  const test::TemporaryFolder folder;
  const pid_t killed = fork();
  if (killed == 0) {
    auto options = reading([](int) { return device::Snapshot(); });
    options.at_end = [&] { std::ofstream(folder.path("ended")) << "yes"; };
    DeviceReader reader(options);
    if (ask(reader)) raise(SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(killed, &status, 0), killed);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(test::wait_until([&] { return test::slurp(folder.path("ended")) == "yes"; }));
}

TEST(ChildDeviceReader, IsWellWhileAllDevicesAnswer) {
  device::Snapshot snapshot;
  EXPECT_TRUE(is_well(snapshot));
  snapshot.devices.resize(2);
  snapshot.devices[1].state = device::State::kBusy;
  EXPECT_TRUE(is_well(snapshot));
  snapshot.devices[1].state = device::State::kNoAnswer;
  EXPECT_FALSE(is_well(snapshot));
}

}  // namespace
}  // namespace yoke::program
