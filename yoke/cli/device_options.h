// yoke/cli/device_options.h -- what the commands about devices have in common.
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
  std::string vendor;  ///< "nvidia", "amd", "cpu"; empty: all
  /// Words of a device::DeviceSelection; empty: all devices. Others are neither read nor waited for.
  std::vector<std::string> chosen;

  /// Errors  kInvalidArgument: a word that can name no device.
  device::DeviceSelection selection() const { return device::DeviceSelection::parse(chosen); }
};

/// --deadline SECONDS, --vendor, --replay FILE, --sysroot DIR. `options` must outlive the parsing.
void add_device_options(CLI::App& command, DeviceOptions& options);

enum class ChoiceForm {
  kWords,   ///< `-d 0 1`, `-d 0,1`
  kOneWord  ///< `-d 0,1`, where words that are not options follow.
};

/// The option that chooses devices. Its names are -d, --device, --devices, -i and --id for all commands, so that nobody
/// has to know which command has which; help shows those in `shown` ("-d,--device"). `words` must outlive the parsing.
void add_device_choice(CLI::App& command, std::vector<std::string>& words, const std::string& shown,
                       const std::string& description, ChoiceForm form = ChoiceForm::kWords);

/// Errors  of make_replay_source.
std::unique_ptr<device::Source> open_source(const DeviceOptions& options);

/// Runs `work(source)` and returns what it returns. A driver may hold a thread of a process in the kernel for ever, and
/// such a process never ends; therefore, where there is a GPU driver, `work` runs in a child, which is left behind when
/// it has finished and does not go away. Terminal, signals and exit status are as if there were no child.
int with_source(const DeviceOptions& options, Context& context, const std::function<int(device::Source&)>& work);

/// Columns of the terminal of standard output (or COLUMNS); 80 when it is none.
int64_t output_width(const Context& context);

}  // namespace yoke::cli
