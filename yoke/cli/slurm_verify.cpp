// `yoke slurm verify`: show which CPUs, devices and memory the ranks of a step really have, and what is wrong with it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/slurm.h"
#include "yoke/cli/slurm_read.h"
#include "yoke/slurm/site/find.h"
#include "yoke/slurm/verify/measure.h"
#include "yoke/slurm/verify/request.h"
#include "yoke/slurm/verify/verify.h"
#include "yoke/slurm/words/programs.h"

namespace yoke::cli {
namespace {

constexpr int64_t kFirstSpecialStepId = 0xfffffff0;  // the batch script and the shell of salloc
constexpr std::chrono::seconds kStepTime{180};
constexpr size_t kMostMeasured = 16;
constexpr int kExitWrong = 1;

struct VerifyArgs {
  DeviceOptions device;
  bool json = false, dry = false, reads = false;
  std::vector<int64_t> measured;
};

nlohmann::ordered_json findings_json(const std::vector<slurm::VerifyFinding>& findings) {
  auto json = nlohmann::ordered_json::array();
  for (const auto& one : findings) json.push_back({{"ranks", one.ranks}, {"text", one.text}, {"advice", one.advice}});
  return json;
}

nlohmann::ordered_json report_json(const std::vector<slurm::TaskSeen>& tasks,
                                   const std::vector<slurm::VerifyFinding>& findings) {
  nlohmann::ordered_json json = {{"tasks", nlohmann::ordered_json::array()}};
  for (const auto& task : tasks) json["tasks"].push_back(slurm::to_json(task));
  json["findings"] = findings_json(findings);
  json["notes"] = slurm::notes(tasks);
  return json;
}

void print_notes(const std::vector<slurm::TaskSeen>& tasks, Context& context) {
  for (const auto& sentence : slurm::notes(tasks)) context.out << "note: " << sentence << '\n';
}

void print_findings(const std::vector<slurm::VerifyFinding>& findings, Context& context) {
  for (const auto& one : findings) context.out << fmt::format("wrong: {}\n       {}\n", one.text, one.advice);
}

/// Whether srun or mpirun started this process.
bool is_a_task(const Environment& environment) {
  if (environment.contains("OMPI_COMM_WORLD_RANK") || environment.contains("FLUX_TASK_RANK")) return true;
  const auto step = environment.find("SLURM_STEP_ID");
  return step && parse_int(*step).value_or(0) < kFirstSpecialStepId;
}

/// Prints what this process has: as a line for the process that gathers, or for people.
int read_here(const VerifyArgs& args, Context& context) {
  return with_source(args.device, context, [&](device::Source& source) {
    auto task = read_task(source, args.device, context);
    if (std::ranges::find(args.measured, task.rank) != args.measured.end()) {
      task.measured =
          slurm::measure_memory(task.cpus, std::min(task.local_world_size, static_cast<int64_t>(args.measured.size())));
    }
    if (args.reads) {
      context.out << slurm::task_lines(task) << std::flush;
      return kExitOk;
    }
    const auto findings = slurm::judge(std::vector{task});
    if (args.json) {
      print_json(report_json({task}, findings), context);
    } else {
      const auto* const device = task.device();
      context.out << fmt::format("rank {} on {}: device {}, CPUs {} ({}), memory of node {} ({})\n", task.rank,
                                 printable(task.host), device == nullptr ? "none" : device->pci_bus_id,
                                 task.cpus.to_list(), task.cpus.size(), task.memory_nodes.to_list(),
                                 task.memory_policy);
      print_findings(findings, context);
      print_notes({task}, context);
    }
    return findings.empty() ? kExitOk : kExitWrong;
  });
}

/// Starts a step that reads, and returns what its tasks have, ordered by rank.
std::vector<slurm::TaskSeen> read_step(const VerifyArgs& args, const std::vector<int64_t>& measured,
                                       const Context& context) {
  std::vector<std::string> argv = {"srun"};
  argv.insert(argv.end(), context.rest.begin(), context.rest.end());
  argv.insert(argv.end(), {context.installation.executable.string(), "slurm", "verify", "--read"});
  if (!measured.empty()) argv.push_back(fmt::format("--measure={}", fmt::join(measured, ",")));
  if (!args.device.sysroot.empty()) argv.push_back("--sysroot=" + args.device.sysroot);
  if (!args.device.replay.empty()) argv.push_back("--replay=" + args.device.replay);
  if (!args.device.vendor.empty()) argv.push_back("--vendor=" + args.device.vendor);
  argv.push_back(fmt::format("--deadline={}", args.device.deadline_s));
  const auto output = run_quietly(argv, context.environment, kStepTime);
  if (output.timed_out || output.status != 0) throw slurm::step_failure(output, kStepTime);
  auto tasks = slurm::tasks_in(output.out);
  if (tasks.empty()) throw slurm::step_failure(output, kStepTime);
  return tasks;
}

/// Measures the ranks of the findings in a second step, because the first one must not disturb itself. Errors  those of
/// read_step().
void measure_wrong_ones(std::vector<slurm::TaskSeen>& tasks, const std::vector<slurm::VerifyFinding>& findings,
                        const VerifyArgs& args, const Context& context) {
  std::vector<int64_t> ranks;
  for (const auto& finding : findings) ranks.insert(ranks.end(), finding.ranks.begin(), finding.ranks.end());
  std::ranges::sort(ranks);
  ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
  if (ranks.size() > kMostMeasured) ranks.resize(kMostMeasured);
  if (ranks.empty()) return;
  for (const auto& seen : read_step(args, ranks, context)) {
    const auto found = std::ranges::find(tasks, seen.rank, &slurm::TaskSeen::rank);
    if (found != tasks.end()) found->measured = seen.measured;
  }
}

std::string measured_text(const slurm::TaskSeen& task) {
  const auto& measured = *task.measured;
  auto text = fmt::format("measured: rank {} copies memory at {}/s on its {}", task.rank, format_bytes(measured.own),
                          counted(measured.num_own, "CPU"));
  if (measured.num_whole > 0) {
    text += fmt::format(", {}/s on the {} CPUs of its control group", format_bytes(measured.whole), measured.num_whole);
  }
  return text;
}

void print_report(const std::vector<slurm::TaskSeen>& tasks, const std::vector<slurm::VerifyFinding>& findings,
                  const std::string& not_measured, Context& context) {
  context.out << to_text(to_table(tasks), table_width(context)) << '\n';
  print_findings(findings, context);
  for (const auto& task : tasks) {
    if (task.measured) context.out << measured_text(task) << '\n';
  }
  if (!not_measured.empty()) context.out << "not measured: copies of memory: " << not_measured << '\n';
  print_notes(tasks, context);
  const bool has_devices = std::ranges::any_of(tasks, [](const auto& task) { return task.device() != nullptr; });
  if (has_devices && !findings.empty()) context.out << "not measured: copies between hosts and devices\n";
  if (findings.empty()) {
    context.out << fmt::format("verdict: right; {}\n", slurm::verdict_text(tasks));
  } else {
    context.out << fmt::format("verdict: wrong, for {}\n", counted(findings.size(), "reason"));
  }
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
    nlohmann::ordered_json json = {{"expected", lines}};
    json["findings"] = findings_json(findings);
    print_json(json, context);
  } else {
    for (const auto& line : lines) context.out << line << '\n';
    print_findings(findings, context);
    context.out
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
  if (args.reads || is_a_task(context.environment)) return read_here(args, context);
  if (!context.environment.contains("SLURM_JOB_ID")) {
    throw Error(ErrorCode::kFailedPrecondition,
                "there is no job here (SLURM_JOB_ID is not set); run this in a batch script or in the shell of "
                "salloc, or add --dry to look at the options alone");
  }
  if (!find_program("srun", context.environment)) {
    throw Error(ErrorCode::kNotFound, "srun is not in PATH; load the module of Slurm");
  }
  slurm::check_controller(context.environment);
  auto tasks = read_step(args, {}, context);
  const auto findings = judge(tasks, wish_of(args, context));
  std::string not_measured;
  try {
    measure_wrong_ones(tasks, findings, args, context);
  } catch (const Error& error) {  // the findings are worth more than the measurement
    not_measured = error.what();
  }
  if (args.json) {
    auto json = report_json(tasks, findings);
    if (!not_measured.empty()) json["not_measured"] = not_measured;
    print_json(json, context);
  } else {
    print_report(tasks, findings, not_measured, context);
  }
  return findings.empty() ? kExitOk : kExitWrong;
}

}  // namespace

void add_slurm_verify(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<VerifyArgs>();  // CLI11 keeps references to *args; the callback owns it
  auto words = std::make_shared<std::vector<std::string>>();
  cmd.add_flag("--dry", args->dry,
               "Judge the options alone, also by the file of a site that matches here; start nothing");
  cmd.add_flag("--read", args->reads, "")->group("");
  cmd.add_option("--measure", args->measured, "")->delimiter(',')->group("");
  cmd.add_flag("--json", args->json, "Print JSON");
  add_device_options(cmd, args->device);
  cmd.add_option("SRUN-OPTION", *words, "Options of srun, as for the program that is to be started")
      ->type_name(kProgramArguments)
      ->expected(0, -1);
  cmd.footer(
      examples("  yoke slurm verify                        in a batch script or in salloc: what `srun PROGRAM` gives\n"
               "  yoke slurm verify -- --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8\n"
               "  yoke slurm verify -- --cpu-bind=none     try other options before the program runs\n"
               "  srun -n8 yoke slurm verify               each task prints what it has\n"
               "  mpirun yoke slurm verify                 the same, without Slurm\n"
               "  yoke slurm verify --dry -- -N2 --ntasks-per-node=4 --gpus-per-task=1    on a login node\n"
               "\n"
               "The exit status is 0 if every rank has what it should, and 1 if something is wrong."));
  cmd.callback([args, words, &context] { context.exit_code = run_verify(*args, context); });
}

}  // namespace yoke::cli
