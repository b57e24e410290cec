#include "yoke/cli/device_options.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/cli/attempt.h"
#include "yoke/cli/values.h"

namespace yoke::cli {

void add_device_options(CLI::App& command, DeviceOptions& options) {
  command.add_option("--deadline", options.deadline_s, "How long drivers may take to answer")
      ->type_name("SECONDS")
      ->check(in_range(0.001, 86'400, "seconds"))
      ->capture_default_str();
  command.add_option("--vendor", options.vendor, "Devices of this vendor alone")->type_name("nvidia|amd|cpu");
  command.add_option("--replay", options.replay, "A recording (`yoke devices --record FILE`) instead of this machine")
      ->type_name("FILE");
  command.add_option("--sysroot", options.sysroot, "Read proc and sys below DIR")->type_name("DIR");
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

int64_t output_width(const Context& context) {
  winsize size = {};
  if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const auto columns = parse_int(context.environment.value_or("COLUMNS", ""));
  return columns && *columns > 0 ? *columns : 80;
}

}  // namespace yoke::cli
