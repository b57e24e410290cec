// `yoke slurm top`: the devices of all nodes of a job on one page.
#include <unistd.h>

#include "yoke/base/host.h"
#include "yoke/base/terminal.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/value.h"
#include "yoke/device/source.h"
#include "yoke/slurm/job/job_top.h"

namespace yoke::cli {
namespace {

struct SlurmTopArgs {
  std::string job;
  slurm::TopOptions options;
  bool on_node = false;
};

int run_slurm_top(const SlurmTopArgs& args, Context& context) {
  if (args.on_node) {  // below srun
    const auto source = device::make_live_source();
    slurm::stream_devices(
        *source, context.environment.value_or("SLURMD_NODENAME", host_name()), args.options,
        [&](const std::string& lines) { return static_cast<bool>(context.out << lines << std::flush); });
    if (source->has_stuck_worker()) _exit(kExitOk);
    return kExitOk;
  }
  const auto job = slurm::job_to_watch(args.job, context.environment);
  const bool is_once = args.options.is_once;
  const bool is_page = !is_once && isatty(STDOUT_FILENO) == 1 && can_redraw(context.environment);
  const auto draw = [&](const std::string& page) {
    context.out << (is_page ? "\x1b[H\x1b[2J" : "") << page << (is_page || is_once ? "" : "\n") << std::flush;
    return static_cast<bool>(context.out);
  };
  slurm::watch_job(job, context.installation.executable.string(), args.options, context.environment,
                   {.width = [&] { return output_width(context); }, .draw = draw, .is_early = is_page},
                   teller(context));
  return kExitOk;
}

}  // namespace

void add_slurm_top(CLI::App& cmd, Context& context) {
  auto& args = add_args<SlurmTopArgs>(cmd, context, run_slurm_top);
  add_value(cmd, "JOB", args.job, "JOB", "A running job, as 123, or a task of an array, as 123_4")->required();
  add_number(cmd, "--interval", args.options.interval_s, {"SECONDS", 1, 3600}, "Time between two samples");
  cmd.add_flag("--once", args.options.is_once, "Print one page and end");
  cmd.add_flag("--on-node", args.on_node, "What this command starts on each node: prints lines for programs");
  cmd.footer(
      examples("  yoke slurm top 4121           the devices of all its nodes; Ctrl-C leaves\n"
               "  yoke slurm top --once 4121    one page, for a mail or a log\n"
               "\n"
               "It starts a step of its own beside the job's (srun --overlap), which ends with it. A node that\n"
               "does not answer is shown as such. All nodes must have yoke under the same path.\n"
               "\n"
               "Exit status: 0, also when the job ends; 66 if there is no such job; 69 if it does not run;\n"
               "75 if slurmctld or munge cannot be reached, or no step can be started."));
}

}  // namespace yoke::cli
