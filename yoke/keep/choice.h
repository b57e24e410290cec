// yoke/keep/choice.h -- which devices a request may be given, by what its user named. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/claim/allocate.h"
#include "yoke/device/device.h"

namespace yoke::keep {

/// Fills in AllocationRequest::only with the devices that are named by `words` (device::DeviceSelection), and the
/// number of devices if the request has none. Without words, every device may be given.
/// Errors  kNotFound: the machine has no such device; those of DeviceSelection.
void choose_named(const device::Snapshot& snapshot, const std::vector<std::string>& words,
                  claim::AllocationRequest& request);

/// The same with the devices on which a process computes. Errors  kNotFound: there is none; kFailedPrecondition:
/// another user's process computes on one of them, too.
void choose_used(const device::Snapshot& snapshot, int64_t pid, claim::AllocationRequest& request);

/// The keys of the devices that the request may be given, now or later.
std::vector<std::string> keys_of(const device::Snapshot& snapshot, const claim::AllocationRequest& request);

}  // namespace yoke::keep
