// yoke/device/uses.h -- a flat list of which process uses which device. Pure.
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

}  // namespace yoke::device
