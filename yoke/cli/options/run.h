// yoke/cli/options/run.h -- the options of `yoke run`.
#pragma once

#include "yoke/launch/torchrun/options.h"

namespace CLI {
class App;
}

namespace yoke::cli {

/// `options` must outlive the parsing.
void add_run_options(CLI::App& command, launch::RunOptions& options);

}  // namespace yoke::cli
