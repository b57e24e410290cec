// yoke/cli/share/jupyter.h -- what the files of `yoke jupyter` share.
#pragma once

#include "yoke/cli/command.h"
#include "yoke/environment/kernel_spec.h"

namespace yoke::cli {

/// Adds --claim, --devices and --for.
void add_kernel_devices(CLI::App& cmd, environment::KernelDevices& devices);

void add_jupyter_start(CLI::App& cmd, Context& context);

}  // namespace yoke::cli
