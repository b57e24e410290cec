// yoke/claim/installation.h -- tries out whether claims work on this machine: for `yoke admin check`.
#pragma once

#include <functional>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/doctor/doctor.h"
#include "yoke/site/account.h"

namespace yoke::claim {

struct InstallationOptions {
  std::vector<site::Account> accounts;  ///< Two users.
  Environment environment;
  /// What other rooms find in the site's configuration. An Error of the first one is a finding about the file.
  std::function<std::vector<device::Finding>()> check_containers, check_storage;
};

/// Looks at the configuration, the folders and the machine. Root also tries locks and devices as the two users, of whom
/// one takes a device that does not exist. Leaves nothing behind but the lock of all.
/// REQUIRES: this process has one thread.
std::vector<device::Finding> check_installation(const InstallationOptions& options);

}  // namespace yoke::claim
