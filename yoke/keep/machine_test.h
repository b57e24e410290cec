// yoke/keep/machine_test.h -- a pretended machine for the tests of this room: devices, real locks in a folder of its
// own, other processes, and what was told.
#pragma once

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "yoke/base/file.h"
#include "yoke/keep/acquire.h"

namespace yoke::keep {

/// Answers with the devices of a snapshot that are selected.
class SnapshotSource : public device::Source {
 public:
  SnapshotSource(device::Snapshot snapshot, const device::DeviceSelection& selection) : snapshot_(std::move(snapshot)) {
    if (selection.is_everything()) return;
    std::vector<device::Device> chosen;
    try {
      for (const auto& choice : selection.resolve(snapshot_)) chosen.push_back(*choice.device);
    } catch (const Error&) {
      chosen.clear();
    }
    snapshot_.devices = chosen;
  }
  device::Snapshot sample(const device::Want& /*want*/) override { return snapshot_; }

 private:
  device::Snapshot snapshot_;
};

struct TestMachine {
  explicit TestMachine(int64_t num_devices = 2)
      : site{{}, claim::Ledger(claim::LockFolder(locks_path(folder), claim::LockFolder::Owner::kRootOrSelf))} {
    for (int64_t i = 0; i < num_devices; ++i) {
      device::Device device{.index = i, .vendor = device::Vendor::kNvidia};
      device.facts.uuid = fmt::format("GPU-{}", i);
      device.readings.utilization_percent = 0;
      device.has_process_list = true;
      snapshot.devices.push_back(device);
    }
  }

  static std::string locks_path(const test::TemporaryFolder& folder) {
    chmod(folder.path().c_str(), 01777);
    return folder.path();
  }

  AcquireOptions wish(int64_t num_devices, bool waits = false) const {
    AcquireOptions options{.waits = waits};
    options.request.wish.num_devices = num_devices;
    options.request.note.purpose = "test";
    options.device.open = [devices = snapshot](const device::SourceOptions& source) {
      return std::make_unique<SnapshotSource>(devices, source.selection);
    };
    return options;
  }

  Acquired acquire(const AcquireOptions& options) { return keep::acquire(options, site, environment, tell); }

  /// The keys of the devices that somebody holds.
  std::vector<std::string> held() const {
    std::vector<std::string> keys;
    for (const auto& holding : survey().holdings) keys.push_back(holding.key);
    return keys;
  }
  claim::Survey survey() const { return site.ledger.open(claim::Ledger::Access::kLook).survey(); }

  /// The texts that were told so.
  std::vector<std::string> told(Told what) const {
    std::vector<std::string> texts;
    for (const auto& [kind, text] : all_told) {
      if (kind == what) texts.push_back(text);
    }
    return texts;
  }

  test::TemporaryFolder folder;
  ClaimSite site;
  device::Snapshot snapshot;
  Environment environment = {{"PATH", "/usr/bin:/bin"}};
  std::vector<std::pair<Told, std::string>> all_told = {};
  std::function<void(const std::string& text)> on_news = {};  ///< Called when it is told.
  Tell tell = [this](Told what, const std::string& text) {
    all_told.emplace_back(what, text);
    if (what == Told::kNews && on_news) on_news(text);
  };
};

/// Another process. It runs `work`, says that it is ready unless `work` has done that, and waits to be killed.
class Other {
 public:
  explicit Other(const std::function<void(const std::function<void()>& ready)>& work) {
    auto pipe = make_pipe();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto ready = [&] {
        if (pipe.write_end && write(pipe.write_end.value(), "x", 1) != 1) _exit(1);
        pipe.write_end.reset();
      };
      try {
        work(ready);
      } catch (const std::exception&) {
        _exit(1);
      }
      ready();
      for (;;) pause();
    }
    pipe.write_end.reset();
    char byte = 0;
    is_ready_ = read(pipe.read_end.value(), &byte, 1) == 1;
  }
  /// One that holds so many devices.
  Other(TestMachine& machine, int64_t num_devices)
      : Other([&](const std::function<void()>& ready) {
          const auto acquired = machine.acquire(machine.wish(num_devices));
          ready();
          for (;;) pause();
        }) {}
  ~Other() { end(); }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;

  bool is_ready() const { return is_ready_; }
  pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  bool is_ready_ = false;
};

}  // namespace yoke::keep
