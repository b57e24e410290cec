// `yoke slurm`: batch scripts for a cluster, what is wrong with them, and what jobs do.
#include "yoke/cli/cluster/slurm.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace yoke::cli {

void add_slurm(CLI::App& cmd, Context& context) {
  cmd.require_subcommand(1);
  add_slurm_submit(*cmd.add_subcommand("submit", "Submit a job in terms of nodes, ranks and devices"), context);
  add_slurm_script(*cmd.add_subcommand("script", "Print the batch script that submit would submit"), context);
  add_slurm_site(*cmd.add_subcommand("site", "Show, choose or detect the description of a cluster"), context);
  add_slurm_check(*cmd.add_subcommand("check", "Look for mistakes in batch scripts and command lines"), context);
  add_slurm_verify(*cmd.add_subcommand("verify", "Show which CPUs, devices and memory ranks of a step really have"),
                   context);
  add_slurm_ps(*cmd.add_subcommand("ps", "List jobs, where they run or why they wait"), context);
  add_slurm_logs(*cmd.add_subcommand("logs", "Print what a job has printed"), context);
  add_slurm_top(*cmd.add_subcommand("top", "Watch the devices of all nodes of a job"), context);
  add_slurm_report(*cmd.add_subcommand("report", "Say what jobs used of what they asked for, with advice"), context);
  add_slurm_sample(*cmd.add_subcommand("sample", "Run a program in a job, and sample what it uses for a report"),
                   context);
  add_slurm_array(*cmd.add_subcommand("array", "Run a sweep as an array of jobs, and collect the results"), context);
  add_slurm_resume(*cmd.add_subcommand("resume", "Run a job again, so that it goes on from its newest checkpoint"),
                   context);
  cmd.footer(
      examples("  yoke slurm submit -N 2 -t 2h -- python train.py\n"
               "  yoke slurm script --site lumi-g -A project_1 -N 4 -t 1d -- python train.py > job.sh\n"
               "  yoke slurm check job.sh\n"
               "  yoke slurm ps\n"
               "  yoke slurm logs --follow 4711\n"
               "  yoke slurm verify\n"
               "  yoke slurm report 4711"));
}

}  // namespace yoke::cli
