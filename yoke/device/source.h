// yoke/device/source.h -- where snapshots come from: this machine, or a recording of one.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "yoke/device/device.h"
#include "yoke/device/selection.h"

namespace yoke::device {

class Source {
 public:
  virtual ~Source() = default;

  /// Everything at this moment. Devices and their order stay the same from call to call.
  virtual Snapshot sample(const Want& want) = 0;

  /// True when a driver still holds a thread of this process: leave by _exit, for its library's destructors would wait.
  virtual bool has_stuck_worker() const { return false; }
};

struct SourceOptions {
  std::chrono::milliseconds deadline = std::chrono::seconds(1);  ///< For a whole sample.
  std::filesystem::path sysroot = "/";                           ///< Below it are proc and sys.
  bool with_nvml = true;
  bool with_amdgpu = true;
  bool with_cpu = true;
  /// What may be meant. Other devices are neither read nor waited for: they are in Snapshot::unasked; nor is a driver
  /// started that has none of these, unless its devices are to be counted.
  DeviceSelection selection;
};

/// This machine. Each device is read by a worker of its own; one that does not answer within the deadline is in the
/// snapshot with State::kNoAnswer, and is not waited for again until it has answered. Starts threads.
std::unique_ptr<Source> make_live_source(const SourceOptions& options = {});

/// A recording: sample() gives its snapshots one after the other, and the last one from then on.
/// Errors  kNotFound, kDataLoss with the line.
std::unique_ptr<Source> make_replay_source(const std::filesystem::path& file);

/// One snapshot of this machine's devices with their processes.
Snapshot sample(const Want& want = {}, const SourceOptions& options = {});

/// The devices of this machine, facts and memory alone.
std::vector<Device> list(const SourceOptions& options = {});

}  // namespace yoke::device
