// yoke/cli/frame/shell.h -- variables as lines for a shell's eval.
#pragma once

#include <string>
#include <vector>

#include "yoke/device/visibility/set.h"

namespace yoke::cli {

/// "export NAME='value'" or "unset NAME", a line for each.
std::string to_shell(const std::vector<device::Assignment>& assignments);

}  // namespace yoke::cli
