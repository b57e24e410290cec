// yoke/device/source.h -- sources of snapshots: this machine, or a recording.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "yoke/device/device.h"
#include "yoke/device/selection.h"

namespace yoke::device {

class Source {
 public:
  virtual ~Source() = default;

  /// Returns the present state of all devices. Every call returns the same devices in the same order.
  virtual Snapshot sample(const Want& want) = 0;

  /// Returns true if a thread of this process still hangs in a driver. The caller must then end by _exit(), because the
  /// destructors of the driver's library would wait for the thread.
  virtual bool has_stuck_worker() const { return false; }
};

struct SourceOptions {
  std::chrono::milliseconds deadline = std::chrono::seconds(1);  ///< The limit for a whole sample.
  std::filesystem::path sysroot = "/";                           ///< The folder that holds proc and sys.
  bool with_nvml = true;
  bool with_amdgpu = true;
  bool with_cpu = true;
  /// The devices to read. Other devices are neither read nor waited for; they are in Snapshot::unasked. A driver that
  /// has none of the selected devices is not opened, unless its devices must be counted.
  DeviceSelection selection;
};

/// A source for this machine. Each device has its own worker. A device that does not answer within the deadline has
/// State::kNoAnswer in the snapshot, and later samples do not wait for it until it has answered. Starts threads.
std::unique_ptr<Source> make_live_source(const SourceOptions& options = {});

/// A source for a recording. sample() returns its snapshots one after the other, then always the last one.
/// Errors  kNotFound if there is no such file; kDataLoss, with the line's number, if a line is not a snapshot.
std::unique_ptr<Source> make_replay_source(const std::filesystem::path& file);

/// Takes one snapshot of this machine's devices with their processes.
Snapshot sample(const Want& want = {}, const SourceOptions& options = {});

/// Lists the devices of this machine, with facts and memory only.
std::vector<Device> list(const SourceOptions& options = {});

}  // namespace yoke::device
