// yoke/cli/frame/teller.h -- shows the user of a command what rooms tell.
#pragma once

#include <string>

#include "yoke/base/tell.h"
#include "yoke/cli/command.h"

namespace yoke::cli {

/// Where the reasons for a choice of devices are printed (`--explain`).
enum class Reasons { kNowhere, kError, kOutput };

/// Prints on standard error, with the name of the command, and writes to the user's other terminals. `context` must
/// outlive the result.
Tell teller(const Context& context, Reasons reasons = Reasons::kNowhere);

/// Writes a line to each terminal of the user of this process that accepts messages (mesg(1)), but not to `except`, a
/// descriptor. Returns how many got it.
int tell_terminals(const std::string& text, int except);

}  // namespace yoke::cli
