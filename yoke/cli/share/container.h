// yoke/cli/share/container.h -- the actions of `yoke container`, each in a file of its own.
#pragma once

#include "yoke/cli/command.h"

namespace yoke::cli {

// Each function adds options, examples and the callback of an action.
void add_container_run(CLI::App& cmd, Context& context);
void add_container_ps(CLI::App& cmd, Context& context);
void add_container_logs(CLI::App& cmd, Context& context);
void add_container_stop(CLI::App& cmd, Context& context);
void add_container_exec(CLI::App& cmd, Context& context);
void add_container_build(CLI::App& cmd, Context& context);
void add_container_packages(CLI::App& cmd, Context& context);
void add_container_extend(CLI::App& cmd, Context& context);

}  // namespace yoke::cli
