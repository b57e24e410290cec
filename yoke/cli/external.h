// yoke/cli/external.h -- `yoke NAME` for a NAME that is no command of its own, in git's way.
#pragma once

#include <string>
#include <vector>

#include "yoke/cli/command.h"

namespace yoke::cli {

/// Becomes libexec/yoke/yoke-NAME, or else the `yoke-NAME` of PATH, with `arguments` as they are. Returns if there is
/// neither. Errors  as errno says, when it is there and cannot be run.
void exec_external(const std::string& name, const std::vector<std::string>& arguments, const Context& context);

/// Names for `yoke --help` and for spelling: what is in libexec/yoke.
std::vector<std::string> external_commands(const Installation& installation);

}  // namespace yoke::cli
