// yoke/device/visibility/set.h -- computes the variables that make programs see only the chosen devices.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/device.h"

namespace yoke::device {

struct Assignment {
  std::string name;
  std::optional<std::string> value;  ///< nullopt if the variable is to be unset.

  bool operator==(const Assignment&) const = default;
};

enum class IdFormat {
  kUuid,
  kIndex,  ///< For programs that read only numbers. CUDA_DEVICE_ORDER is then set to PCI_BUS_ID.
};

/// Returns the changes to `environment` that make a program enumerate the devices of `selection` in its order.
/// `selection` is "all", "none", or words of DeviceSelection separated by commas. Other variables that would filter
/// these devices too are unset. AMD GPUs without a unique UUID are given by number in both formats; ROCr's order is
/// fixed.
/// Errors  those of DeviceSelection, with the id; kFailedPrecondition if no program can see these devices together.
std::vector<Assignment> assignments_for(std::string_view selection, IdFormat format, const Environment& environment,
                                        const Snapshot& snapshot);

void assign(const std::vector<Assignment>& assignments, Environment& environment);

}  // namespace yoke::device
