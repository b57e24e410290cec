// yoke/cli/color_option.h -- `--color`, of the commands that print colours.
#pragma once

#include "yoke/base/terminal.h"

namespace CLI {
class App;
}

namespace yoke::cli {

/// `mode` must outlive the parsing. Another word is refused by check_values().
void add_color_option(CLI::App& command, ColorMode& mode);

}  // namespace yoke::cli
