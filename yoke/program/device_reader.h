// yoke/program/device_reader.h -- a child process that keeps the drivers open, for commands that read devices again
// and again.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>

#include "yoke/base/file.h"
#include "yoke/device/source.h"

namespace yoke::program {

/// A driver may hold its caller for ever, and its library stays in the process that has loaded it. So a child process
/// reads the devices, and this process asks it and never waits for it. The child inherits no descriptor, so it keeps
/// no lock. It ends when this process does, as soon as the driver lets it.
class DeviceReader {
 public:
  struct Options {
    std::function<std::unique_ptr<device::Source>()> open;  ///< Called in the child.
    device::Want want;
    std::function<void()> at_end = {};  ///< Called in the child if this process ended without the destructor.
  };

  /// Starts the child. REQUIRES: this process has one thread.  Errors  kUnavailable: no child can be started.
  explicit DeviceReader(const Options& options);
  DeviceReader(const DeviceReader&) = delete;
  DeviceReader& operator=(const DeviceReader&) = delete;
  ~DeviceReader();  ///< Kills the child. Does not wait for a child that a driver holds.

  /// Kills the child without waiting for it. Returns its number for reap(). The object can then only be destroyed.
  pid_t end();
  /// Waits for a child that was killed, for at most 20 ms, since a driver may hold it. -1: without effect.
  static void reap(pid_t child);

  /// Asks for a snapshot. REQUIRES: not is_asked().
  void request();
  bool is_asked() const { return is_asked_; }

  pid_t pid() const { return child_; }
  int fd() const { return socket_.value(); }  ///< Readable when there is an answer, or when the child has ended.
  /// The answer. nullopt: the devices could not be read; the child has ended, or should be replaced. REQUIRES: fd() is
  /// readable.
  std::optional<device::Snapshot> take();

 private:
  pid_t child_ = -1;
  UniqueFd socket_;
  bool is_asked_ = false;
};

/// Whether all devices answered. If not, a reader should be replaced: a device that comes back may need its driver to
/// be opened again.
bool is_well(const device::Snapshot& snapshot);

}  // namespace yoke::program
