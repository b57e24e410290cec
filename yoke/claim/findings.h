// yoke/claim/findings.h -- what `yoke doctor` says about claims: mistakes of the installation, and of users.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/claim/idle.h"
#include "yoke/claim/ledger.h"
#include "yoke/device/device.h"
#include "yoke/device/doctor/doctor.h"

namespace yoke::claim {

/// Who holds what, and what kept this process from learning it.
struct ClaimState {
  std::string config_problem;  ///< A mistake in the configuration; empty: there is none.
  std::string folder_problem;  ///< Why no folder of locks can be used; empty: there is one.
  std::string folder;
  std::vector<std::string> obstacles;  ///< What is in the way of locks (LockFolder::obstacles).
  bool is_prepared = false;  ///< The site has prepared this machine for claims: a configuration, or a folder for locks.
  IdleLimits idle;
  Survey survey;
};

/// Reads the configuration, the folder and the locks, without waiting for others.
ClaimState read_claim_state(const Environment& environment);

/// Nothing, if this machine is not prepared for claims and has none. Pure. `now`: the time of the snapshot.
std::vector<device::Finding> claim_findings(const ClaimState& state, const device::Snapshot& snapshot, Time now);

}  // namespace yoke::claim
