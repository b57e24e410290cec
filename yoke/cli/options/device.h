// yoke/cli/options/device.h -- the options of all commands about devices, and the source of their data.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/cli/command.h"
#include "yoke/device/selection.h"
#include "yoke/device/source.h"

namespace yoke::cli {

struct DeviceOptions {
  double deadline_s = 1;
  std::string sysroot;
  std::string replay;
  std::string vendor;  ///< "nvidia", "amd", "cpu"; empty for all.
  /// Words of a device::DeviceSelection; empty for all devices. Devices that are not chosen are not read.
  std::vector<std::string> chosen;

  /// Errors  kInvalidArgument: a word is not a name of a device.
  device::DeviceSelection selection() const { return device::DeviceSelection::parse(chosen); }
};

/// --deadline SECONDS alone, for commands about this machine. `deadline_s` must outlive the parsing.
void add_deadline(CLI::App& command, double& deadline_s);

/// --deadline SECONDS, --vendor, --replay FILE, --sysroot DIR. `options` must outlive the parsing.
void add_device_options(CLI::App& command, DeviceOptions& options);

enum class ChoiceForm {
  kWords,   ///< `-d 0 1`, `-d 0,1`
  kOneWord  ///< `-d 0,1`, for commands with positionals.
};

/// Adds the option that chooses devices. All commands accept the names -d, --device, --devices, -i and --id, so users
/// need not remember which command has which name. Help shows only the names in `shown` ("-d,--device"). `words` must
/// outlive the parsing.
void add_device_choice(CLI::App& command, std::vector<std::string>& words, const std::string& shown,
                       const std::string& description, ChoiceForm form = ChoiceForm::kWords);

/// Errors  those of make_replay_source; kNotFound: the folder of --sysroot does not exist.
std::unique_ptr<device::Source> open_source(const DeviceOptions& options);

/// Runs `work(source)` and returns its result. If a driver holds a thread in the kernel for ever, the process of that
/// thread never ends. Therefore `work` runs in a child process (attempt_in_child), and this command ends even if the
/// child does not. If the source is a recording, no child is needed.
int with_source(const DeviceOptions& options, Context& context, const std::function<int(device::Source&)>& work);

}  // namespace yoke::cli
