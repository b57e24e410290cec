// `yoke slurm script`: print the batch script that `yoke slurm submit` would submit.
#include <memory>

#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/cluster/slurm_options.h"
#include "yoke/cli/options/value.h"

namespace yoke::cli {

void add_slurm_script(CLI::App& cmd, Context& context) {
  auto options = std::make_shared<SlurmJobOptions>();  // CLI11 keeps references to it; the callback owns it
  add_job_options(cmd, *options);
  add_program(cmd, "PROGRAM", "What to run, with its arguments; every word from here on is its own");
  cmd.footer(examples(
      "  yoke slurm script -N 2 -t 2h -- python train.py             for this cluster\n"
      "  yoke slurm script --site lumi-g -A project_1 -N 4 -t 1d -- python train.py\n"
      "  yoke slurm script --site lumi-g --container torch.sif --overlay env.sqsh -A project_1 -- python t.py\n"
      "  yoke slurm script -N 2 -t 1h -- ./train --workers {cpus} > job.sh; sbatch job.sh\n"
      "\n"
      "The script needs no yoke on the cluster. Its comments say why its lines are there."));
  cmd.callback([options, &context] {
    context.out << plan_job(*options, context).script;
    context.exit_code = kExitOk;
  });
}

}  // namespace yoke::cli
