// yoke/device/visibility/set.h -- the variables that make programs see chosen devices, and no others.
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
  std::optional<std::string> value;  ///< nullopt: to be unset.

  bool operator==(const Assignment&) const = default;
};

enum class IdFormat {
  kUuid,
  kIndex,  ///< For programs that read only numbers; CUDA is told to count in PCI order.
};

/// What to change in `environment` so that a program enumerates the devices of `selection` in its order. `selection`:
/// "all", "none", or words of DeviceSelection between commas. Variables that would filter a second time are unset. AMD
/// GPUs without a UUID of their own are given by number in either format, as ROCr's order is fixed. Errors  of
/// DeviceSelection, naming the id; kFailedPrecondition when no program can see these together.
std::vector<Assignment> assignments_for(std::string_view selection, IdFormat format, const Environment& environment,
                                        const Snapshot& snapshot);

void assign(const std::vector<Assignment>& assignments, Environment& environment);

}  // namespace yoke::device
