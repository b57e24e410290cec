// yoke/cli/cluster/slurm.h -- the actions of `yoke slurm`, each in a file of its own.
#pragma once

#include "yoke/cli/command.h"

namespace yoke::cli {

// Each function adds options, examples and the callback of an action.
void add_slurm_array(CLI::App& cmd, Context& context);
void add_slurm_check(CLI::App& cmd, Context& context);
void add_slurm_logs(CLI::App& cmd, Context& context);
void add_slurm_ps(CLI::App& cmd, Context& context);
void add_slurm_report(CLI::App& cmd, Context& context);
void add_slurm_resume(CLI::App& cmd, Context& context);
void add_slurm_sample(CLI::App& cmd, Context& context);
void add_slurm_script(CLI::App& cmd, Context& context);
void add_slurm_site(CLI::App& cmd, Context& context);
void add_slurm_submit(CLI::App& cmd, Context& context);
void add_slurm_top(CLI::App& cmd, Context& context);
void add_slurm_verify(CLI::App& cmd, Context& context);

}  // namespace yoke::cli
