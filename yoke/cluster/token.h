// yoke/cluster/token.h -- the secret by which nodes of one user's jobs know each other.
#pragma once

#include <filesystem>
#include <string>

#include "yoke/base/environment.h"

namespace yoke::cluster {

/// YOKE_JOB_TOKEN, or else what is in the user's file, which is made at its first use: hosts with a common home share
/// it. Errors  kFailedPrecondition: others may read the file, or it is not the user's; there is no home. As errno says.
std::string job_token(const Environment& environment);

/// $XDG_CONFIG_HOME/yoke/token, or ~/.config/yoke/token. Errors  kFailedPrecondition: HOME is not set.
std::filesystem::path token_file(const Environment& environment);

}  // namespace yoke::cluster
