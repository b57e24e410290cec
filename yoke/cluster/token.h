// yoke/cluster/token.h -- the secret with which the nodes of a user's jobs recognise each other.
#pragma once

#include <filesystem>
#include <string>

#include "yoke/base/environment.h"

namespace yoke::cluster {

/// Returns the value of YOKE_JOB_TOKEN, or else the content of the user's token file. The file is created on first use;
/// hosts with a common home folder share it. Errors  kFailedPrecondition if other users may read the file, it belongs
/// to a different user, or HOME is not set. Otherwise as errno says.
std::string job_token(const Environment& environment);

/// Returns a new random token.
std::string new_token();

/// Returns $XDG_CONFIG_HOME/yoke/token, or ~/.config/yoke/token. Errors  kFailedPrecondition if HOME is not set.
std::filesystem::path token_file(const Environment& environment);

}  // namespace yoke::cluster
