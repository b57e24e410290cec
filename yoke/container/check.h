// yoke/container/check.h -- whether users could start and build containers by a site's rules: for `yoke admin check`.
#pragma once

#include <vector>

#include "yoke/base/environment.h"
#include "yoke/device/doctor/doctor.h"
#include "yoke/site/account.h"

namespace yoke::container {

/// REQUIRES: this process has one thread.  Errors  those of read_rules().
std::vector<device::Finding> check_rules(const std::vector<site::Account>& accounts, const Environment& environment);

}  // namespace yoke::container
