// yoke/device/unanswered.h -- where nobody can say who uses a device.
#pragma once

#include <string>
#include <vector>

#include "yoke/device/device.h"
#include "yoke/device/selection.h"

namespace yoke::device {

/// A device whose processes are not known; or a driver that has not answered, with all of its devices.
struct Unanswered {
  std::string device_id;  ///< Of a driver empty.
  std::string device_uuid;
  std::string backend;  ///< "nvml"; of a device empty.
  std::string state, reason;

  std::string what() const;  ///< "device 5", "the driver (nvml)"
  std::string why() const;   ///< In a few words: "no answer"
};

/// Where nobody can say who uses a device that `selection` names, or may name: its driver did not answer, or does not
/// tell. An empty list of uses means nothing for these.
/// Errors  of DeviceSelection::resolve.
std::vector<Unanswered> unanswered_of(const Snapshot& snapshot, const DeviceSelection& selection = {});

/// The first backend that has not told which devices it has; null if all drivers have answered. While there is one, a
/// device that is missing from the snapshot may nevertheless be in the machine.
const BackendReport* find_silent_backend(const Snapshot& snapshot);

}  // namespace yoke::device
