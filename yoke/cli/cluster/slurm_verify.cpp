// `yoke slurm verify`: show which CPUs, devices and memory the ranks of a step really have, and what is wrong with it.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/slurm/job/verify_step.h"
#include "yoke/slurm/site/find.h"
#include "yoke/slurm/verify/measure.h"
#include "yoke/slurm/verify/request.h"

namespace yoke::cli {
namespace {

constexpr int kExitWrong = 1;

struct VerifyArgs {
  DeviceOptions device;
  bool json = false, dry = false, reads = false;
  std::vector<int64_t> measured;
};

/// Prints what this process has: as a line for the process that gathers, or for people.
int read_here(const VerifyArgs& args, Context& context) {
  return with_source(args.device, context, [&](device::Source& source) {
    auto task = slurm::read_task(source, {.sysroot = args.device.sysroot, .has_gpus = args.device.vendor != "cpu"},
                                 context.environment);
    if (std::ranges::find(args.measured, task.rank) != args.measured.end()) {
      task.measured =
          slurm::measure_memory(task.cpus, std::min(task.local_world_size, static_cast<int64_t>(args.measured.size())));
    }
    if (args.reads) {
      context.out << slurm::task_lines(task) << std::flush;
      return kExitOk;
    }
    const slurm::StepReport report{.tasks = {task}, .findings = slurm::judge(std::vector{task})};
    if (args.json) {
      print_json(to_json(report), context);
    } else {
      const auto* const device = task.device();
      context.out << fmt::format("rank {} on {}: device {}, CPUs {} ({}), memory of node {} ({})\n", task.rank,
                                 printable(task.host), device == nullptr ? "none" : device->pci_bus_id,
                                 task.cpus.to_list(), task.cpus.size(), task.memory_nodes.to_list(), task.memory_policy)
                  << slurm::to_text(report.findings) << slurm::notes_text(report.tasks);
    }
    return report.findings.empty() ? kExitOk : kExitWrong;
  });
}

/// What each task of the step runs.
std::vector<std::string> reading_command(const DeviceOptions& options, const Context& context) {
  std::vector<std::string> argv = {context.installation.executable.string(), "slurm", "verify", "--read"};
  if (!options.sysroot.empty()) argv.push_back("--sysroot=" + options.sysroot);
  if (!options.replay.empty()) argv.push_back("--replay=" + options.replay);
  if (!options.vendor.empty()) argv.push_back("--vendor=" + options.vendor);
  argv.push_back(fmt::format("--deadline={}", options.deadline_s));
  return argv;
}

/// The site here; nullopt if it is not known.
std::optional<slurm::FoundSite> site_of_request(const Context& context) {
  try {
    std::vector<std::string> notes;
    return slurm::choose_site_here("", "", context.environment,
                                   slurm::site_folders(context.environment, context.installation.share), notes);
  } catch (const Error&) {  // no Slurm here, or it does not answer: the options can still be judged
    return std::nullopt;
  }
}

int verify_request(const VerifyArgs& args, Context& context) {
  const auto site = site_of_request(context);
  const auto request = slurm::read_step_request(context.rest, context.environment, site ? site->version : std::nullopt);
  auto findings = judge(request);
  if (site && !site->file.empty()) {  // what Slurm says of most of its nodes need not be true for this step's
    std::ranges::move(judge(request, site->site), std::back_inserter(findings));
  }
  auto lines = describe(request);
  if (site && !site->file.empty()) lines.push_back(fmt::format("site {} ({})", site->site.name, site->why));
  if (args.json) {
    print_json({{"expected", lines}, {"findings", slurm::to_json(findings)}}, context);
  } else {
    for (const auto& line : lines) context.out << line << '\n';
    context.out
        << slurm::to_text(findings)
        << "This is what was asked for; in the job, the same command without --dry reads what the ranks have.\n";
  }
  return findings.empty() ? kExitOk : kExitWrong;
}

/// What the user asked of srun. Options of plugins and other options that are not understood here leave it unknown.
slurm::StepWish wish_of(const VerifyArgs& args, const Context& context) {
  try {
    const auto request = slurm::read_step_request(context.rest, context.environment, std::nullopt);
    return {.cpu_bind = request.cpu_bind, .wants_gpu = request.wants_gpu() && args.device.vendor != "cpu"};
  } catch (const Error&) {
    return {};
  }
}

int run_verify(const VerifyArgs& args, Context& context) {
  slurm::check_no_program(context.rest);
  if (args.dry) return verify_request(args, context);
  if (args.reads || slurm::is_a_task(context.environment)) return read_here(args, context);
  const auto report = slurm::verify_step({.srun = context.rest, .read = reading_command(args.device, context)},
                                         wish_of(args, context), context.environment);
  if (args.json) {
    print_json(to_json(report), context);
  } else {
    context.out << to_text(report, table_width(context));
  }
  return report.findings.empty() ? kExitOk : kExitWrong;
}

}  // namespace

void add_slurm_verify(CLI::App& cmd, Context& context) {
  auto& args = add_args<VerifyArgs>(cmd, context, run_verify);
  cmd.add_flag("--dry", args.dry,
               "Judge the options alone, also by the file of a site that matches here; start nothing");
  cmd.add_flag("--read", args.reads, "")->group("");
  cmd.add_option("--measure", args.measured, "")->delimiter(',')->group("");
  cmd.add_flag("--json", args.json, "Print JSON");
  add_device_options(cmd, args.device);
  add_program(cmd, "SRUN-OPTION", "Options of srun, as for the program that is to be started");
  cmd.footer(
      examples("  yoke slurm verify                        in a batch script or in salloc: what `srun PROGRAM` gives\n"
               "  yoke slurm verify -- --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8\n"
               "  yoke slurm verify -- --cpu-bind=none     try other options before the program runs\n"
               "  srun -n8 yoke slurm verify               each task prints what it has\n"
               "  mpirun yoke slurm verify                 the same, without Slurm\n"
               "  yoke slurm verify --dry -- -N2 --ntasks-per-node=4 --gpus-per-task=1    on a login node\n"
               "\n"
               "The exit status is 0 if every rank has what it should, and 1 if something is wrong."));
}

}  // namespace yoke::cli
