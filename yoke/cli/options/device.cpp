#include "yoke/cli/options/device.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/options/value.h"

namespace yoke::cli {

void add_deadline(CLI::App& command, double& deadline_s) {
  add_number(command, "--deadline", deadline_s, {"SECONDS", 0.001, 86'400}, "How long drivers may take to answer");
}

void add_device_options(CLI::App& command, DeviceOptions& options) {
  add_deadline(command, options.deadline_s);
  add_value(command, "--vendor", options.vendor, "nvidia|amd|cpu", "Devices of this vendor alone");
  add_value(command, "--replay", options.replay, "FILE",
            "A recording (`yoke devices --record FILE`) instead of this machine");
  add_value(command, "--sysroot", options.sysroot, "DIR", "Read proc and sys below DIR");
  command.parse_complete_callback([&command, &options] {
    if (options.replay.empty()) return;
    for (const char* name : {"--deadline", "--vendor", "--sysroot"}) {  // these choose how this machine is read
      if (command.get_option(name)->count() == 0) continue;
      refuse("{} is for this machine, and --replay is not; leave one of them out", name);
    }
  });
}

void add_device_choice(CLI::App& command, std::vector<std::string>& words, const std::string& shown,
                       const std::string& description, ChoiceForm form) {
  const auto add = [&](const std::string& names) {
    const auto append = [&words](const std::vector<std::string>& more) {
      words.insert(words.end(), more.begin(), more.end());
    };
    auto* option = command.add_option_function<std::vector<std::string>>(names, append, description);
    option->type_name(form == ChoiceForm::kWords ? "ID..." : "ID,ID...");
    if (form == ChoiceForm::kOneWord) option->expected(1);
    return option;
  };
  const auto is_shown = [&](const std::string& name) {
    return ("," + shown + ",").find("," + name + ",") != shown.npos;
  };
  std::string others;
  for (const std::string name : {"-d", "--device", "--devices", "-i", "--id"}) {
    if (!is_shown(name)) others += (others.empty() ? "" : ",") + name;
  }
  add(shown);
  add(others)->group("");  // help does not show them
}

std::unique_ptr<device::Source> open_source(const DeviceOptions& options) {
  if (!options.replay.empty()) return device::make_replay_source(options.replay);
  const auto& vendor = options.vendor;
  if (!options.sysroot.empty() && !std::filesystem::is_directory(options.sysroot)) {
    throw Error(ErrorCode::kNotFound, "--sysroot {}: no such folder", options.sysroot);
  }
  device::SourceOptions source;
  source.deadline = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(std::max(0.001, options.deadline_s)));
  if (!options.sysroot.empty()) source.sysroot = options.sysroot;
  source.with_nvml = vendor.empty() || vendor == "nvidia";
  source.with_amdgpu = vendor.empty() || vendor == "amd";
  source.with_cpu = vendor.empty() || vendor == "cpu";
  source.selection = options.selection();
  return device::make_live_source(source);
}

int with_source(const DeviceOptions& options, Context& context, const std::function<int(device::Source&)>& work) {
  if (!options.replay.empty()) return work(*open_source(options));
  return attempt_in_child(context, [&](const std::function<void(int)>& finish) {
    const auto source = open_source(options);
    const int status = report_errors(context, [&] { return work(*source); });
    if (source->has_stuck_worker()) finish(status);
    return status;
  });
}

}  // namespace yoke::cli
