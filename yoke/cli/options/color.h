// yoke/cli/options/color.h -- the option `--color`.
#pragma once

#include "yoke/base/terminal.h"

namespace CLI {
class App;
}

namespace yoke::cli {

/// `mode` must outlive the parsing. check_values() refuses words that name no mode.
void add_color_option(CLI::App& command, ColorMode& mode);

}  // namespace yoke::cli
