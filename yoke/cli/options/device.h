// yoke/cli/options/device.h -- the options that all commands about devices have, and the source that they choose.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/base/table.h"
#include "yoke/cli/command.h"
#include "yoke/device/selection.h"
#include "yoke/device/source.h"

namespace yoke::cli {

struct DeviceOptions {
  double deadline_s = 1;
  std::string sysroot;
  std::string replay;
  std::string vendor;  ///< "nvidia", "amd", "cpu"; empty for all.
  /// Words of a device::DeviceSelection; empty for all devices. Other devices are neither read nor waited for.
  std::vector<std::string> chosen;

  /// Errors  kInvalidArgument: a word cannot name a device.
  device::DeviceSelection selection() const { return device::DeviceSelection::parse(chosen); }
};

/// --deadline SECONDS, --vendor, --replay FILE, --sysroot DIR. `options` must outlive the parsing.
void add_device_options(CLI::App& command, DeviceOptions& options);

enum class ChoiceForm {
  kWords,   ///< `-d 0 1`, `-d 0,1`
  kOneWord  ///< `-d 0,1`, for commands with positionals.
};

/// The option that chooses devices. All commands accept the names -d, --device, --devices, -i and --id, so that users
/// need not know which command has which; help shows those in `shown` ("-d,--device"). `words` must outlive the
/// parsing.
void add_device_choice(CLI::App& command, std::vector<std::string>& words, const std::string& shown,
                       const std::string& description, ChoiceForm form = ChoiceForm::kWords);

/// Errors  those of make_replay_source; kNotFound: --sysroot names no folder.
std::unique_ptr<device::Source> open_source(const DeviceOptions& options);

/// Runs `work(source)` and returns its result. A driver may hold a thread in the kernel for ever, and a process with
/// such a thread never ends. Therefore `work` runs in a child (attempt_in_child), which is left behind if it cannot
/// end. A recording needs no child.
int with_source(const DeviceOptions& options, Context& context, const std::function<int(device::Source&)>& work);

}  // namespace yoke::cli
