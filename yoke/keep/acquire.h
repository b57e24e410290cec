// yoke/keep/acquire.h -- claims devices: reads them, decides, takes, and waits in the queue if that is wanted.
//
//   const auto site = keep::open_claim_site(environment);
//   auto acquired = keep::acquire({.request = {.wish = {.num_devices = 2}}, .waits = true}, site, environment, tell);
//   return acquired.status != 0 ? acquired.status : keep::run(acquired, {"./train"}, environment, tell);
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/tell.h"
#include "yoke/claim/allocate.h"
#include "yoke/claim/queue.h"
#include "yoke/device/visibility/set.h"
#include "yoke/keep/claim_site.h"
#include "yoke/keep/device_look.h"
#include "yoke/keep/use_watch.h"

namespace yoke::keep {

struct AcquireOptions {
  claim::AllocationRequest request;
  DeviceLookOptions device;
  bool waits = false;
  std::optional<std::chrono::seconds> wait_limit = {};
  std::optional<int64_t> adopted_pid = {};  ///< Takes the devices that this process uses.
  bool inherits = false;  ///< Under another claim, takes of the devices of that one alone (claim/inherit.h).
};

/// The devices that were taken. With AllocationRequest::is_dry, Allocation::claim is empty, and these would be taken.
struct Acquired {
  claim::Allocation allocation;
  device::Snapshot snapshot;
  std::vector<std::string> held;  ///< The ids of all devices of the claim under which this runs; empty: there is none.
  std::vector<device::Assignment> assignments;  ///< The variables that make a program see the devices.
  UseWatchOptions watch;                        ///< How to look whether the devices are used.
  /// Not 0: a signal ended the wait, and nothing was taken. It is 128 plus the signal's number.
  int status = 0;
  /// The process that has read the devices, if it is about to end (DeviceReader::reap): waiting for it would delay the
  /// program. -1: there is none.
  pid_t ended_reader = -1;
  /// Of a request that has waited. Closing it takes the kernel up to 20 ms, so the program begins first.
  std::optional<claim::Wakeup> wakeup = {};

  /// Lets go of what is left of the wait.
  void end_wait();
};

/// Is thrown if the devices are not free, or never will be.
struct Refused : Error {
  Refused(ErrorCode code, const claim::Refusal& why) : Error(code, why.text()), refusal(why) {}
  claim::Refusal refusal;
};

/// Takes devices, after waiting in the queue if that is wanted. While it waits, signals that end processes end the
/// wait. `site` must outlive what is returned.
/// Errors  Refused: kUnavailable: not enough devices are free; kFailedPrecondition: waiting would not help.
///         kTimeout: the wait lasted until the limit; kNotFound: there is no GPU, or not the one that was named; those
///         of the drivers. REQUIRES: this process has one thread, and no SignalMessages exists.
Acquired acquire(const AcquireOptions& options, const ClaimSite& site, const Environment& environment,
                 const Tell& tell);

}  // namespace yoke::keep
