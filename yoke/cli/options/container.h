// yoke/cli/options/container.h -- what `yoke container run` and `yoke jupyter` share: the options of a container, and
// what follows from them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/cli/command.h"
#include "yoke/cli/options/device.h"
#include "yoke/keep/run_container.h"

namespace yoke::cli {

using keep::KeptContainer;

struct ContainerOptions {
  std::string engine, name, network, working_folder, extension, shared_memory, memory, cpus, length, wait;
  std::optional<std::string> gpu;
  DeviceOptions device;
  std::vector<std::string> volumes, variables, variable_files, ports;
  double deadline_s = 1;
  bool prints = false, detaches = false;
  std::string purpose = {};                       ///< Of the claim; empty: the container's name.
  std::vector<container::Mount> own_mounts = {};  ///< In addition to those of the user.
};

/// Which devices the user wants.
struct DeviceWish {
  bool is_none = false;
  bool is_default = false;
  std::optional<int64_t> num_devices = {};
  std::vector<std::string> ids = {};
};

/// Errors  kInvalidArgument: --gpu and --device contradict each other, or --gpu is ambiguous.
DeviceWish device_wish(const ContainerOptions& options);

struct ImageAndCommand {
  std::string image;
  std::vector<std::string> command;
};

/// Adds --engine and -v.
void add_engine_and_volumes(CLI::App& cmd, ContainerOptions& options);

/// Adds -e. In `yoke jupyter`, --env is something else.
void add_variables(CLI::App& cmd, ContainerOptions& options, const char* names = "-e,--env");

/// Adds -w.
void add_working_folder(CLI::App& cmd, ContainerOptions& options, const char* help);

/// Adds -v, -e, --engine and --extension. In `yoke jupyter`, --env is something else.
void add_container_options(CLI::App& cmd, ContainerOptions& options, const char* names_of_variable = "-e,--env");

/// container::choose_engine(), with a note about engines that were left out because they did not answer.
container::Engine choose_engine(const container::EngineWish& wish, const Context& context);

/// "pytorch-1f3a": `text` as a part of a container's name, and a random number.
std::string name_with_number(const std::string& text);

/// The variables of -e. Errors  kInvalidArgument: one has no name.
container::Variables variables_of_user(const ContainerOptions& options, const Environment& environment);

/// The folder of -w. Errors  kInvalidArgument: it is not absolute.
const std::string& working_folder_inside(const ContainerOptions& options);

/// What a program in the foreground gets of this command's standard streams.
container::Foreground foreground_of_streams();

/// Everything but the devices. Downloads the image if it is not on this machine.
/// Errors  those of container::choose_engine() and others; the message says which option is wrong.
KeptContainer describe_container(const ContainerOptions& options, ImageAndCommand wanted, Context& context);

/// Claims the devices. Returns false with `status` if that was interrupted.
bool take_devices(const ContainerOptions& options, const DeviceWish& wish, KeptContainer& kept, Context& context,
                  int& status);

/// keep::run_container() for this command.
int run_container(Context& context, const std::function<std::optional<KeptContainer>(int& status)>& prepare,
                  bool is_detached);

}  // namespace yoke::cli
