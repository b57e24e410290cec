// yoke/cli/options/remote.h -- what the commands about remote folders and storage share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "yoke/storage/quota.h"
#include "yoke/storage/remote.h"

namespace CLI {
class App;
}

namespace yoke::cli {

constexpr double kStorageTimeout = 10;  ///< The default of --timeout, in seconds.

/// Adds --timeout.
void add_storage_timeout(CLI::App& cmd, double& timeout_s);

/// An entry of `yoke mounts --json`.
nlohmann::ordered_json remote_json(const storage::RemoteMount& mount, const storage::Condition& condition);

/// "quota of user ada: 80.0 GiB of 100.0 GiB, 20.0 GiB left", and why there may be others that are not known.
std::vector<std::string> quota_lines(const storage::Quotas& quotas);

/// The array `quotas` of `yoke storage --json`.
nlohmann::ordered_json quotas_json(const storage::Quotas& quotas);

}  // namespace yoke::cli
