// yoke/storage/check.h -- whether users can have their folders in the roots of a site: for `yoke admin check`.
#pragma once

#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/doctor/doctor.h"
#include "yoke/site/account.h"

namespace yoke::storage {

/// Tries each root as these users, which only root can. REQUIRES: this process has one thread.
std::vector<device::Finding> check_roots(const std::vector<site::Account>& accounts, const Environment& environment);

}  // namespace yoke::storage
