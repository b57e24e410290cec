// yoke/keep/device_look.h -- reads the devices of this machine for somebody who wants to claim some, once or again and
// again, and never in this process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/tell.h"
#include "yoke/device/source.h"
#include "yoke/program/device_reader.h"
#include "yoke/program/watched_program.h"

namespace yoke::keep {

struct DeviceLookOptions {
  std::vector<std::string> chosen = {};  ///< Words of a device::DeviceSelection; empty: all. Others are not read.
  double deadline_s = 1;
  bool needs_details = false;  ///< Reads all facts about the devices (device::Want::details).
  std::function<std::unique_ptr<device::Source>(const device::SourceOptions&)> open = device::make_live_source;
  std::function<void()> in_child = {};  ///< Called in the child that reads the devices, which may outlive this process.
};

/// How a source of these devices is opened.
std::function<std::unique_ptr<device::Source>()> opener(const DeviceLookOptions& options, bool with_cpu = true);

/// The next signal that asks this process to end; 0: none has come.
int next_interruption(program::SignalMessages& messages);

/// A driver that hangs keeps no lock, and this process loads none: children read the devices.
class DeviceLook {
 public:
  /// How somebody waits: with `signals`, in children that first call `in_child`. `at_end` is called in a child whose
  /// parent was killed.
  struct Waiting {
    program::SignalMessages& signals;
    std::function<void()> in_child, at_end;
  };

  /// REQUIRES: `tell` outlives this object, and this process has one thread.
  DeviceLook(DeviceLookOptions options, const Tell& tell) : options_(std::move(options)), tell_(tell) {}

  /// From now on a process keeps the drivers open, because opening them takes longer than anything else between the
  /// release of a device and the start of a program.
  void begin_to_wait(Waiting waiting) { waiting_.emplace(std::move(waiting)); }

  /// Reads the devices that `chosen` names. nullopt: a signal has ended this; see status().
  /// Errors  those of the source.
  std::optional<device::Snapshot> read(const std::vector<std::string>& chosen);
  /// 128 plus the number of the signal that ended this process's work, or its child.
  int status() const { return status_; }

  /// Lets drivers take longer from now on, and says so, if one has not answered in the usual time: without persistence
  /// mode, the first program to open a GPU waits for seconds. Those whose own deadline has passed have chosen.
  /// Returns whether the devices are to be read again.
  bool grant_more_time(const device::Snapshot& snapshot);

  /// Kills the child of somebody who waited. Returns it for DeviceReader::reap(); -1: there is none.
  pid_t end() { return reader_ ? reader_->end() : -1; }

 private:
  DeviceLookOptions now(const std::vector<std::string>& chosen) const;
  std::optional<device::Snapshot> read_first(const std::vector<std::string>& chosen);
  std::optional<device::Snapshot> read_again(const std::vector<std::string>& chosen);

  const DeviceLookOptions options_;
  const Tell& tell_;
  std::optional<double> deadline_s_;  ///< In place of that of the options, once drivers were slow.
  std::optional<Waiting> waiting_;
  std::unique_ptr<program::DeviceReader> reader_;  ///< Since it waits.
  Clock::time_point reader_begin_;
  std::vector<std::string> read_by_reader_;
  int status_ = 0;
};

}  // namespace yoke::keep
