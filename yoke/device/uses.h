// yoke/device/uses.h -- which process uses which device, and of which devices this is not known. Pure.
#pragma once

#include <string>
#include <vector>

#include "yoke/device/device.h"
#include "yoke/device/selection.h"

namespace yoke::device {

/// A process on one device. A process that uses several devices has one entry for each.
struct DeviceUse {
  std::string device_id;  ///< "0", or "0:1" for a MIG instance.
  std::string device_uuid;
  DeviceProcess process;
};

/// Lists the processes on the devices of `selection`, by device, then by memory in descending order.
/// Errors  those of DeviceSelection::resolve.
std::vector<DeviceUse> uses_of(const Snapshot& snapshot, const DeviceSelection& selection = {});

/// A device whose processes are not known, or a driver that has not answered. Such a driver stands for all its devices.
struct Unanswered {
  std::string device_id;  ///< Empty for a driver.
  std::string device_uuid;
  std::string backend;  ///< "nvml"; empty for a device.
  std::string state, reason;

  std::string what() const;  ///< "device 5", "the driver (nvml)"
  std::string why() const;   ///< In a few words: "no answer"
};

/// Lists the devices that `selection` names, or may name, and whose processes are not known, because the driver did not
/// answer or does not list them. Without a process list, a device cannot be considered free.
/// Errors  those of DeviceSelection::resolve.
std::vector<Unanswered> unanswered_of(const Snapshot& snapshot, const DeviceSelection& selection = {});

/// Returns the first backend that has not reported its devices, or null if all have. If there is one, devices may be
/// missing from the snapshot.
const BackendReport* find_silent_backend(const Snapshot& snapshot);

/// Returns the devices and drivers that have not answered within the deadline, as text: "devices 0, 1", "the driver
/// (nvml)"; empty if all have.
std::string silent_devices(const Snapshot& snapshot);

}  // namespace yoke::device
