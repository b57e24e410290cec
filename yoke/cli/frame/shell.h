// yoke/cli/frame/shell.h -- variables as lines for a shell's eval.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yoke/device/visibility/set.h"

namespace yoke::cli {

/// "export NAME='value'" or "unset NAME", a line for each.
std::string to_shell(const std::vector<device::Assignment>& assignments);

/// A line that hides all devices and has this exit status, because a shell that gets no text from a command in
/// eval "$(...)" does not learn that the command failed.
std::string failure_to_shell(int status);

/// Whether the words of a command line, which may have mistakes, ask for text that a shell may evaluate.
bool is_for_eval(std::string_view command, const std::vector<std::string>& words, bool has_program);

}  // namespace yoke::cli
