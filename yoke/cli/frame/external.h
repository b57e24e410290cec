// yoke/cli/frame/external.h -- as in git, `yoke NAME` starts the program yoke-NAME if the table has no command NAME.
#pragma once

#include <string>
#include <vector>

#include "yoke/cli/command.h"

namespace yoke::cli {

/// Replaces this process by yoke-NAME with `arguments`. Returns if there is no such program.
/// Errors  as errno says: the program exists but cannot be run.
void exec_external(const std::string& name, const std::vector<std::string>& arguments, const Context& context);

/// The names of the programs in libexec/yoke, for `yoke --help`, completion and spelling.
std::vector<std::string> external_commands(const Installation& installation);

}  // namespace yoke::cli
