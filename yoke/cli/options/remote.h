// yoke/cli/options/remote.h -- what the commands about remote folders and storage share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

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

/// Indented text. Bytes that are not UTF-8 are replaced.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace yoke::cli
