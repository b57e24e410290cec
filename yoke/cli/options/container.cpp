#include "yoke/cli/options/container.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "yoke/base/device_memory.h"
#include "yoke/base/error.h"
#include "yoke/base/quantity.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/kept_containers.h"
#include "yoke/cli/options/claim.h"
#include "yoke/container/cdi.h"
#include "yoke/container/config.h"
#include "yoke/container/image.h"
#include "yoke/device/process/info.h"

namespace yoke::cli {
namespace {

container::User this_user() {
  container::User user{.uid = geteuid(), .gid = getegid(), .groups = {}, .name = device::user_name(geteuid())};
  user.groups.resize(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
  const int count = getgroups(static_cast<int>(user.groups.size()), user.groups.data());
  user.groups.resize(static_cast<size_t>(std::max(count, 0)));
  return user;
}

/// The last part of an image's name, without tag and suffix.
std::string short_image_name(const std::string& image) {
  auto part = std::string(base_name(image));
  part = part.substr(0, part.find_first_of(":@"));
  if (part.ends_with(".sif")) part.resize(part.size() - 4);
  return part;
}

container::Foreground foreground(const ContainerOptions& options) {
  if (options.detaches) return container::Foreground::kDetached;
  const bool reads_terminal = isatty(STDIN_FILENO) != 0;
  if (!reads_terminal) return container::Foreground::kPipes;
  return isatty(STDOUT_FILENO) != 0 ? container::Foreground::kTerminal : container::Foreground::kNoInput;
}

std::vector<container::Mount> mounts_of_user(const ContainerOptions& options, container::EngineKind engine,
                                             const Context& context) {
  std::vector<container::Mount> mounts = options.own_mounts;
  const auto folder = std::filesystem::current_path();
  for (const auto& text : options.volumes) {
    auto mount = container::parse_mount(text, folder);
    std::error_code error;
    if (!mount.source.starts_with('/')) {
      const bool is_there = std::filesystem::exists(folder / mount.source, error);
      if (engine == container::EngineKind::kApptainer) {
        mount.source = folder / mount.source;  // Apptainer has no volumes
      } else if (is_there) {
        std::cerr << speaker(context) << "note: -v " << printable(text) << " mounts the engine's volume "
                  << printable(mount.source) << ", and not the file or folder of this name; write ./" << printable(text)
                  << " for that\n";
      }
    }
    if (mount.source.starts_with('/') && !std::filesystem::exists(mount.source, error)) {
      throw Error(ErrorCode::kNotFound, "-v {}: {} does not exist", printable(text), printable(mount.source));
    }
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

container::Variables variables_of_user(const ContainerOptions& options, const Environment& environment) {
  container::Variables variables;
  for (const auto& text : options.variables) {
    const auto equals = text.find('=');
    const auto name = text.substr(0, equals);
    if (name.empty()) throw Error(ErrorCode::kInvalidArgument, "-e {}: give NAME=VALUE or NAME", printable(text));
    if (equals != text.npos) {
      variables.emplace_back(name, text.substr(equals + 1));
    } else if (const auto value = environment.find(name)) {
      variables.emplace_back(name, *value);
    }
  }
  return variables;
}

/// The variables that are passed on by their names alone.
std::vector<std::string> names_passed_on(const ContainerOptions& options) {
  std::vector<std::string> names;
  for (const auto& text : options.variables) {
    const auto name = text.substr(0, text.find('='));
    std::erase(names, name);  // the last -e counts
    if (name == text) names.push_back(name);
  }
  return names;
}

std::optional<int64_t> shared_bytes(const ContainerOptions& options) {
  if (options.shared_memory.empty()) return std::nullopt;
  const auto bytes = parse_memory(options.shared_memory);
  if (bytes) return bytes;
  throw Error(ErrorCode::kInvalidArgument, "--shm-size {}: give a size with its unit, such as 16GiB",
              options.shared_memory);
}

std::filesystem::path find_extension(const std::string& file, const container::Engine& engine) {
  if (engine.kind != container::EngineKind::kApptainer) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "--extension is for apptainer; for {}, `yoke container extend` makes an image, which is run by its name",
        container::name(engine.kind));
  }
  std::error_code error;
  if (std::filesystem::is_regular_file(file, error)) return std::filesystem::absolute(file).lexically_normal();
  throw Error(ErrorCode::kNotFound, "--extension {}: there is no such file; `yoke container extend` makes it",
              printable(file));
}

AcquireOptions acquire_options(const ContainerOptions& options, const DeviceWish& wish, const ClaimSite& site,
                               const KeptContainer& kept) {
  AcquireOptions result{.device = options.device, .inherits = true, .needs_details = true};
  result.device.deadline_s = options.deadline_s;
  result.device.chosen = wish.ids;
  auto& request = result.request;
  const bool is_inside = site.ledger.inherited().has_value();
  if (is_inside && !options.length.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "--for is the time of a claim, and this runs under a claim already, whose time counts; leave --for out");
  }
  request.wish.num_devices = wish.num_devices.value_or(wish.ids.empty() && !is_inside ? 1 : 0);
  request.is_dry = options.prints;
  if (!is_inside) request.length = length_of_claim(options.length, site.config);
  request.note.purpose = options.purpose.empty() ? "container " + kept.request.name : options.purpose;
  result.waits = !options.wait.empty();
  if (result.waits && options.wait != "forever") result.wait_limit = length_of("--wait", options.wait);
  return result;
}

/// A program in the container keeps to the same share as one outside, unless its user sets the variable.
void add_memory_limit(container::Variables& variables, const std::vector<device::Assignment>& assignments) {
  for (const auto& [name, value] : assignments) {
    const auto is_it = [&](const auto& variable) { return variable.first == kDeviceMemoryVariable; };
    if (name != kDeviceMemoryVariable || !value || std::any_of(variables.begin(), variables.end(), is_it)) continue;
    variables.emplace_back(name, *value);
  }
}

/// For a command line that is only printed, an engine is not needed.
container::Engine choose_engine(const ContainerOptions& options, std::optional<container::EngineKind> wanted,
                                const std::string& image, const Context& context) {
  try {
    return container::choose_engine(wanted, image, context.environment);
  } catch (const Error& error) {
    if (!options.prints) throw;
    auto engine = container::assumed_engine(wanted.value_or(container::EngineKind::kPodman));
    if (engine.has_cdi) engine.cdi_devices = container::read_cdi(container::cdi_folders());
    std::cerr << speaker(context) << "note: " << printable(error.what()) << "; this is the command line for "
              << container::name(engine.kind) << ' ' << engine.version.text() << '\n';
    return engine;
  }
}

}  // namespace

DeviceWish device_wish(const ContainerOptions& options) {
  DeviceWish wish = {.ids = options.device.chosen};
  if (!options.gpu) {
    wish.is_default = wish.ids.empty();
    return wish;
  }
  if (!wish.ids.empty()) throw Error(ErrorCode::kInvalidArgument, "give --gpu or --device, not both");
  if (options.gpu->empty() || *options.gpu == "none") {
    wish.is_none = true;
  } else if (const auto number = parse_int(*options.gpu)) {
    if (*number < 0) throw Error(ErrorCode::kInvalidArgument, "--gpu {}: give how many devices, or which", *number);
    if (*number == 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--gpu 0: a number is how many devices; write --gpu none for no device, or --device 0 for device 0");
    }
    wish.num_devices = number;
  } else {
    wish.ids = {*options.gpu};
  }
  return wish;
}

std::string name_with_number(const std::string& text) {
  uint32_t random = 0;
  [[maybe_unused]] const auto count = getrandom(&random, sizeof random, 0);
  return fmt::format("{}-{:06x}", container::name_part(text), random & 0xffffff);
}

KeptContainer describe_container(const ContainerOptions& options, ImageAndCommand wanted, Context& context) {
  // podman looks for the subordinate ids of this user by its name in the environment.
  for (const auto* name : {"USER", "LOGNAME"}) context.environment.set(name, device::user_name(geteuid()));
  const auto rules = container::read_rules(context.environment);
  auto& command = wanted.command;
  auto image = container::full_image_name(wanted.image);
  const auto engine = options.engine.empty() ? rules.default_engine : container::parse_engine_kind(options.engine);
  KeptContainer kept;
  kept.engine = choose_engine(options, engine, image, context);
  image = container::image_for(kept.engine.kind, image);
  auto& request = kept.request;
  request.user = this_user();
  const auto user = container::name_part(request.user.name);
  request.name = container::named(
      rules.container_name, user,
      options.name.empty() ? name_with_number(short_image_name(image)) : container::name_part(options.name));
  // podman and docker refuse a second container of the same name themselves.
  if (kept.engine.kind == container::EngineKind::kApptainer && !options.prints && has_container(request.name)) {
    throw Error(ErrorCode::kFailedPrecondition,
                "a container {} of yours runs already; give another --name, or end it by `yoke container stop {}`",
                printable(request.name), printable(request.name));
  }
  request.image = image;
  request.foreground = foreground(options);
  request.mounts = mounts_of_user(options, kept.engine.kind, context);
  request.folder = std::filesystem::current_path();
  if (!options.working_folder.empty()) {
    if (!options.working_folder.starts_with('/')) {
      throw Error(ErrorCode::kInvalidArgument, "-w {}: give an absolute path, the folder in the container",
                  printable(options.working_folder));
    }
    request.working_folder = options.working_folder;
  }
  request.init = context.installation.libexec / "container-init";
  request.command = context.installation.executable;
  request.variables = variables_of_user(options, context.environment);
  request.inherited = names_passed_on(options);
  if (!options.network.empty()) request.network = options.network;
  if (!options.extension.empty()) request.extension = find_extension(options.extension, kept.engine);
  request.shared_bytes = shared_bytes(options);
  request.host_memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  auto facts = container::find_image(kept.engine, image, context.environment);
  if (!facts && !options.prints) {  // before devices are claimed, because a download may take long
    container::pull_image(kept.engine, image, context.environment);
    facts = container::find_image(kept.engine, image, context.environment);
  }
  if (!facts) {
    std::cerr << speaker(context) << "note: " << printable(image)
              << " is not on this machine, so its entry point is not known and not printed\n";
    facts.emplace();
    if (command.empty()) command = {"sh"};
  }
  request.program = container::program_of(kept.engine, *facts, command);
  return kept;
}

bool take_devices(const ContainerOptions& options, const DeviceWish& wish, KeptContainer& kept, Context& context,
                  int& status) {
  if (wish.is_none) return true;
  const auto site = std::make_shared<ClaimSite>(open_claim_site(context));
  try {
    const auto wanted = acquire_options(options, wish, *site, kept);
    auto acquired = acquire(wanted, *site, context, status);
    if (!acquired) return false;
    kept.devices = container::wanted_devices(acquired->snapshot, acquired->allocation.ids);
    add_memory_limit(kept.request.variables, acquired->assignments);
    kept.claim = std::move(acquired->allocation.claim);
    kept.site = site;  // the claim refers to its folder
    auto device = wanted.device;
    device.chosen = acquired->held.empty() ? acquired->allocation.ids : acquired->held;
    kept.watch = {.ids = device.chosen, .limits = site->config.idle, .open = [device] { return open_source(device); }};
  } catch (const Error& error) {
    if (!wish.is_default || error.code() != ErrorCode::kNotFound) throw;
    std::cerr << speaker(context) << "note: " << error.what()
              << "; the container gets no device. --gpu none says that this is meant\n";
  }
  return true;
}

void add_engine_and_volumes(CLI::App& cmd, ContainerOptions& options) {
  cmd.add_option("--engine", options.engine,
                 "Which engine of containers; otherwise the site's, or else the first that works")
      ->type_name("podman|docker|apptainer");
  cmd.add_option("-v,--volume", options.volumes,
                 "Mount FOLDER at PATH in the container, which also has the working directory at /workspace")
      ->type_name("FOLDER:PATH[:ro]")
      ->take_all();
}

void add_container_options(CLI::App& cmd, ContainerOptions& options, const char* names_of_variable) {
  add_engine_and_volumes(cmd, options);
  cmd.add_option(names_of_variable, options.variables, "Set a variable in the container; NAME alone passes it on")
      ->type_name("NAME[=VALUE]")
      ->take_all();
  cmd.add_option("--extension", options.extension, "Python packages of `yoke container extend`, for Apptainer")
      ->type_name("FILE");
}

}  // namespace yoke::cli
