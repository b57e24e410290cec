// `yoke doctor`: report what keeps programs from using this machine's devices well, and what to do about it.
#include "yoke/device/doctor/doctor.h"

#include <unistd.h>

#include <algorithm>

#include "yoke/base/json.h"
#include "yoke/claim/findings.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/options/color.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/contract/variables.h"
#include "yoke/device/worker.h"
#include "yoke/view/findings.h"

namespace yoke::cli {
namespace {

constexpr int kExitFailed = 1;
constexpr auto kRuntimeDeadline = std::chrono::seconds(10);  // eight GPUs without persistence mode start that slowly
constexpr auto kDeadline = std::chrono::seconds(5);          // of everything else, which is asked at the same time

struct DoctorArgs {
  DeviceOptions device;
  bool json = false;
  ColorMode color = ColorMode::kAuto;
};

device::TorchPlaces torch_places(const DoctorArgs& args, const Context& context) {
  const auto& environment = context.environment;
  const auto build_tree = context.installation.executable.parent_path() / "../../..";
  return {.torch_dir = environment.value_or(variable::kTorchDir, ""),
          .torch_cmake = environment.value_or("Torch_DIR", ""),
          .deps = environment.value_or(variable::kDepsDir, (build_tree / ".deps").string()),
          .ask_python = args.device.sysroot.empty()};
}

int print(const std::vector<device::Finding>& findings, const DoctorArgs& args, Context& context) {
  if (args.json) {
    print_json(Json{{"findings", json_list(findings, [](const auto& one) { return to_json(one); })}}, context);
  } else {
    context.out << view::findings_text(findings,
                                       wants_color(args.color, context.environment, isatty(STDOUT_FILENO) != 0));
  }
  const auto has_failed = [](const auto& finding) { return finding.status == device::Status::kFail; };
  return std::any_of(findings.begin(), findings.end(), has_failed) ? kExitFailed : kExitOk;
}

int run_doctor(const DoctorArgs& args, Context& context) {
  const device::Want want{.details = true, .links = true};
  if (!args.device.replay.empty()) {
    return with_source(args.device, context, [&](device::Source& source) {
      return print(device::findings({.snapshot = source.sample(want), .has_devices_alone = true}), args, context);
    });
  }
  return attempt_in_child(context, [&](const std::function<void(int)>& finish) {
    device::Observations observations{.environment = context.environment};
    for (const auto vendor : {device::Vendor::kNvidia, device::Vendor::kAmd, device::Vendor::kCpu}) {
      if (name(vendor) == args.device.vendor) observations.vendor = vendor;
    }
    const std::filesystem::path sysroot = args.device.sysroot.empty() ? "/" : args.device.sysroot;
    // count_gpus() forks, so it must run before this process starts threads.
    if (sysroot == "/") observations.runtime = device::count_gpus(kRuntimeDeadline);

    const auto now = device::Worker::Clock::now();
    device::Question<device::System> system(
        [=, environment = context.environment] { return device::read_system(sysroot, environment); });
    device::Question<device::KernelLog> kernel_log([=] { return device::read_kernel_log(sysroot); });
    device::Question<std::vector<device::TorchInstall>> torches(
        [places = torch_places(args, context)] { return device::find_torch_installs(places); });
    const bool is_here = sysroot == "/" && args.device.vendor.empty();
    device::Question<claim::ClaimState> claims([=, environment = context.environment] {
      return is_here ? claim::read_claim_state(environment) : claim::ClaimState();
    });
    const auto source = open_source(args.device);
    observations.snapshot = source->sample(want);
    observations.system = system.answer(now + kDeadline);
    observations.kernel_log = kernel_log.answer(now + kDeadline);
    observations.torches = torches.answer(now + kDeadline);

    auto findings = device::findings(observations);
    if (const auto state = claims.answer(now + kDeadline)) {
      for (auto& finding : claim_findings(*state, observations.snapshot, std::chrono::system_clock::now())) {
        findings.push_back(std::move(finding));
      }
    } else {
      findings.push_back({"claims",
                          device::Status::kSkip,
                          {},
                          "the claims could not be read within 5 s",
                          "the folder that `yoke claims` names may be on a file system that hangs"});
    }
    const int status = print(findings, args, context);
    if (source->has_stuck_worker() || system.is_stuck() || kernel_log.is_stuck() || torches.is_stuck() ||
        claims.is_stuck()) {
      finish(status);
    }
    return status;
  });
}

}  // namespace

void add_doctor(CLI::App& cmd, Context& context) {
  auto& args = add_args<DoctorArgs>(cmd, context, run_doctor);
  cmd.add_flag("--json", args.json, "Print JSON");
  add_color_option(cmd, args.color);
  add_device_options(cmd, args.device);
  cmd.footer(
      examples("  yoke doctor                              a line for each thing looked at\n"
               "  yoke doctor | grep -v ^ok                what is wrong\n"
               "  yoke doctor --json | jq -r '.findings[] | select(.status == \"fail\") | .found'\n"
               "\n"
               "Needs no root, changes nothing, and takes at most 20 s where a driver hangs.\n"
               "\n"
               "Exit status: 1 if something fails; 0 if not, with warnings too."));
}

}  // namespace yoke::cli
