#include "yoke/cli/cluster/slurm_options.h"

#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/value.h"
#include "yoke/slurm/words/options.h"

namespace yoke::cli {
std::vector<std::string> check_program_here(const SlurmJobOptions& options, const Context& context) {
  auto request = options.request;
  request.argv = context.rest;
  auto warnings = slurm::check_program_here(request, context.environment);
  for (const auto& warning : warnings) teller(context)(Told::kWarning, warning);
  return warnings;
}

void add_job_options(CLI::App& cmd, SlurmJobOptions& options) {
  auto& request = options.request;
  add_number(cmd, "-N,--nodes", request.num_nodes, {"N", 1, 65536}, "Nodes");
  add_number(cmd, "--gpus-per-node", request.gpus_per_node, {"N", 0, 1024},
             "GPUs on each node; unless given, all that the site's nodes have");
  add_number(cmd, "--ranks-per-node", request.ranks_per_node, {"N", 1, 65536},
             "Ranks on each node; unless given, one for each GPU");
  add_number(cmd, "--cpus-per-rank", request.cpus_per_rank, {"N", 1, 65536},
             "CPUs of each rank, also for its loader; unless given, a GPU's share of the node");
  add_value(cmd, "-t,--time", request.time, "TIME", "The job's longest time: 30m, 2h, 1d12h, or Slurm's H:MM:SS");
  add_value(cmd, "--mem", request.memory, "SIZE", "Memory of a node, such as 100G; unless given, the site's");
  add_value(cmd, "-p,--partition", request.partition, "NAME",
            "The partition; unless given, the site's or Slurm's default");
  add_value(cmd, "-A,--account", request.account, "NAME", "The account or project that pays");
  add_value(cmd, "-q,--qos", request.qos, "NAME", "The quality of service");
  add_value(cmd, "-C,--constraint", request.constraint, "FEATURES", "Nodes with these features alone");
  add_value(cmd, "--reservation", request.reservation, "NAME", "Nodes of this reservation");
  add_value(cmd, "-a,--array", request.array, "INDEXES",
            "An array of jobs, such as 0-9%2; they have SLURM_ARRAY_TASK_ID");
  add_value(cmd, "-d,--dependency", request.dependency, "LIST", "Start after other jobs, such as afterok:4711");
  add_value(cmd, "-J,--job-name", request.job_name, "NAME", "Unless given, the name of the program");
  add_value(cmd, "-o,--output", request.output, "FILE", "What the job prints; slurm-%j.out unless given");
  cmd.add_flag(
      "--file-per-rank", request.has_file_per_rank,
      "Write what rank R prints to slurm-JOB-rankR.out; with a launcher, that of node N to slurm-JOB-nodeN.out");
  add_values(cmd, "--sbatch", request.options, "OPTION",
             "A further option of sbatch, such as --sbatch=--mail-type=END");
  add_value(cmd, "--launcher", options.launcher, "auto|srun|yoke",
            "srun: a task for each rank, needs nothing on the nodes; yoke: a `yoke run` on each node")
      ->capture_default_str();
  add_value(cmd, "--container", request.container, "IMAGE",
            "Run the program in this image, by Singularity or Apptainer");
  add_value(cmd, "--overlay", request.overlay, "FILE", "Lay this squashfs or ext3 file over the image");
  add_values(cmd, "--bind", request.mounts, "DIR", "Mount this folder into the container: DIR, or DIR:DIR_INSIDE");
  add_values(cmd, "--module", request.modules, "NAME", "Load this module in the job");
  add_values(cmd, "--env", options.variables, "NAME=VALUE", "Set this variable in the job");
  add_number(cmd, "--stop-before", request.signal_seconds, {"SECONDS", 0, 65535},
             "Tell the ranks to stop so long before the time is over; 0: not at all");
  add_number(cmd, "--requeue", request.num_requeues, {"N", 0, 10000},
             "Put a job that stopped in time back into the queue, N times at most; 0: never");
  add_value(cmd, "--site", options.site, "NAME",
            "The site, by name or file; unless given, found by the cluster's name");
  add_value(cmd, "--slurm", options.version, "VERSION", "Write for this version of Slurm, such as 23.11");
  static constexpr SbatchHabit kHabits[] = {
      {"-n,--ntasks", "give nodes by -N and ranks of each by --ranks-per-node"},
      {"--ntasks-per-node", "give --ranks-per-node"},
      {"-c,--cpus-per-task", "give --cpus-per-rank"},
      {"-G,--gpus", "give nodes by -N and GPUs of each by --gpus-per-node"},
      {"--gres", "give --gpus-per-node N for GPUs; other resources as --sbatch=--gres=NAME:N"},
      {"--gpus-per-task", "give --gpus-per-node; each rank takes the GPU of its LOCAL_RANK"},
      {"--cpus-per-gpu", "give --cpus-per-rank"},
      {"--signal", "give --stop-before SECONDS"},
      {"--no-requeue", "give --requeue 0"},
      {"--mem-per-cpu", "give it as --sbatch=--mem-per-cpu=SIZE"},
      {"--mem-per-gpu", "give it as --sbatch=--mem-per-gpu=SIZE"},
      {"-w,--nodelist", "give it as --sbatch=--nodelist=NODES"},
      {"-x,--exclude", "give it as --sbatch=--exclude=NODES"},
      {"--exclusive", "give it as --sbatch=--exclusive"},
      {"-b,--begin", "give it as --sbatch=--begin=TIME"},
      {"-e,--error", "give it as --sbatch=--error=FILE"},
      {"--mail-type", "give it as --sbatch=--mail-type=TYPE"},
      {"--mail-user", "give it as --sbatch=--mail-user=ADDRESS"},
      {"-D,--chdir", "`cd` before: the job runs in the folder of its submission"},
      {"--wrap", "give the program after --"},
      {"--export", "give --env NAME=VALUE; the job has the variables of this shell too"}};
  add_habits(cmd, kHabits);
}

void add_habits(CLI::App& cmd, std::span<const SbatchHabit> habits) {
  for (const auto& habit : habits) {
    const std::string names = habit.names, name = names.substr(names.find("--")), instead = habit.instead;
    const auto* spec = slurm::check::find_option(slurm::check::kSbatch, name.substr(2));
    const bool takes_value = spec != nullptr && spec->value == slurm::check::Value::kRequired;
    const auto refuse = [name, instead, takes_value](const std::vector<std::string>& values) {
      // The word after a flag may be the program.
      const auto value = !takes_value || values.empty() || values[0].empty() ? "" : " " + values[0];
      throw Error(ErrorCode::kInvalidArgument, "{}{} is an option of sbatch: {}", name, printable(value), instead);
    };
    cmd.add_option_function<std::vector<std::string>>(names, refuse)->expected(0, 1)->group("");
  }
}

slurm::PlannedJob plan_job(const SlurmJobOptions& options, const Context& context) {
  auto request = options.request;
  request.argv = context.rest;
  if (options.launcher == "srun") request.launcher = slurm::Launcher::kSrun;
  if (options.launcher == "yoke") request.launcher = slurm::Launcher::kYoke;
  for (const auto& assignment : options.variables) request.variables.push_back(slurm::parse_variable(assignment));
  auto job = slurm::plan_job(std::move(request),
                             {.site = options.site, .version = options.version, .share = context.installation.share},
                             context.environment);
  const auto tell = teller(context);
  for (const auto& note : job.notes) tell(Told::kNews, note);
  for (const auto& warning : job.plan.warnings) tell(Told::kWarning, warning);
  return job;
}

}  // namespace yoke::cli
