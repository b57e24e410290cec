#include "yoke/cli/options/container.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/quantity.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/container_folders.h"
#include "yoke/cli/options/value.h"
#include "yoke/container/cdi.h"
#include "yoke/container/config.h"
#include "yoke/container/image.h"
#include "yoke/contract/variables.h"
#include "yoke/device/process/info.h"
#include "yoke/keep/kept_containers.h"

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

/// A size in yoke's units, or in those of docker: 16g, 512M, 4gb.
std::optional<int64_t> size_of_option(const char* option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto begin = std::min(text.find_first_not_of("0123456789."), text.size());
  auto unit = text.substr(begin);
  for (const auto* const ours : {"KiB", "MiB", "GiB", "TiB"}) {
    const bool is_dockers = unit.size() == 1 || (unit.size() == 2 && (unit[1] == 'b' || unit[1] == 'B'));
    if (is_dockers && std::toupper(static_cast<unsigned char>(unit[0])) == ours[0]) unit = ours;
  }
  if (const auto bytes = parse_memory(text.substr(0, begin) + unit)) return bytes;
  throw Error(ErrorCode::kInvalidArgument, "{} {}: give a size with its unit, such as 16GiB", option, printable(text));
}

std::optional<double> cpus_of_option(const std::string& text) {
  if (text.empty()) return std::nullopt;
  constexpr double kMost = 1e6;
  if (const auto number = parse_real(text); number && *number > 0 && *number < kMost) return number;
  throw Error(ErrorCode::kInvalidArgument, "--cpus {}: give how many CPUs, such as 4 or 1.5", printable(text));
}

/// The variables of --env-file, which may be a pipe, as in --env-file <(pass show keys).
container::Variables variables_of_files(const ContainerOptions& options, const Environment& environment) {
  container::Variables variables;
  for (const auto& name : options.variable_files) {
    std::error_code ignored;
    if (!std::filesystem::exists(name, ignored) || std::filesystem::is_directory(name, ignored)) {
      throw Error(ErrorCode::kNotFound, "--env-file {}: there is no such file", printable(name));
    }
    const auto more = container::parse_variable_file(read_file(name), name, environment);
    variables.insert(variables.end(), more.begin(), more.end());
  }
  return variables;
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

keep::AcquireOptions acquire_options(const ContainerOptions& options, const DeviceWish& wish, const ClaimSite& site,
                                     const KeptContainer& kept) {
  keep::AcquireOptions result{.device = {.chosen = wish.ids, .deadline_s = options.deadline_s, .needs_details = true},
                              .inherits = true};
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
    const auto is_it = [&](const auto& variable) { return variable.first == variable::kDeviceMemory; };
    if (name != variable::kDeviceMemory || !value || std::ranges::any_of(variables, is_it)) continue;
    variables.emplace_back(name, *value);
  }
}

/// For a command line that is only printed, an engine is not needed.
container::Engine choose_or_assume(const container::EngineWish& wish, bool prints, const Context& context) {
  try {
    return choose_engine(wish, context);
  } catch (const Error& error) {
    if (!prints) throw;
    const auto usual = container::names_file(wish.image) ? container::EngineKind::kApptainer
                                                         : wish.site.value_or(container::EngineKind::kPodman);
    auto engine = container::assumed_engine(wish.chosen.value_or(usual));
    if (engine.has_cdi) engine.cdi = container::read_cdi(container::cdi_folders());
    std::cerr << speaker(context) << "note: " << printable(error.what()) << "; this is the command line for "
              << container::name(engine.kind) << ' ' << engine.version.text() << '\n';
    return engine;
  }
}

}  // namespace

container::Engine choose_engine(const container::EngineWish& wish, const Context& context) {
  auto engine = container::choose_engine(wish, context.environment);
  if (!engine.passed_over.empty()) {
    std::cerr << speaker(context) << "note: " << printable(engine.passed_over) << "; this uses "
              << container::name(engine.kind) << '\n';
  }
  return engine;
}

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
  return fmt::format("{}-{}", container::name_part(text), random_digits(6));
}

KeptContainer describe_container(const ContainerOptions& options, ImageAndCommand wanted, Context& context) {
  // podman looks for the subordinate ids of this user by its name in the environment.
  for (const auto* name : {"USER", "LOGNAME"}) context.environment.set(name, device::user_name(geteuid()));
  const auto rules = container::read_rules(context.environment);
  auto& command = wanted.command;
  auto image = container::full_image_name(wanted.image);
  KeptContainer kept;
  kept.engine = choose_or_assume(
      {.chosen = container::parse_engine_kind(options.engine), .site = rules.default_engine, .image = image},
      options.prints, context);
  image = container::image_for(kept.engine.kind, image);
  auto& request = kept.request;
  request.user = this_user();
  const auto user = container::name_part(request.user.name);
  request.name = container::named(
      rules.container_name, user,
      options.name.empty() ? name_with_number(short_image_name(image)) : container::name_part(options.name));
  // podman and docker refuse a second container of the same name themselves.
  if (kept.engine.kind == container::EngineKind::kApptainer && !options.prints && keep::has_container(request.name)) {
    throw Error(ErrorCode::kFailedPrecondition,
                "a container {} of yours runs already; give another --name, or end it by `yoke container stop {}`",
                printable(request.name), printable(request.name));
  }
  request.image = image;
  request.foreground = options.detaches ? container::Foreground::kDetached : foreground_of_streams();
  request.mounts = mounts_of_user(options, kept.engine.kind, context);
  request.folder = std::filesystem::current_path();
  if (!options.working_folder.empty()) request.working_folder = working_folder_inside(options);
  request.init = context.installation.libexec / "container-init";
  request.command = context.installation.executable;
  request.variables = variables_of_files(options, context.environment);
  const auto variables = variables_of_user(options, context.environment);  // they have priority
  request.variables.insert(request.variables.end(), variables.begin(), variables.end());
  if (!options.network.empty()) request.network = options.network;
  if (!options.extension.empty()) request.extension = find_extension(options.extension, kept.engine);
  request.shared_bytes = size_of_option("--shm-size", options.shared_memory);
  request.host_memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  request.memory_bytes = size_of_option("--memory", options.memory);
  request.num_cpus = cpus_of_option(options.cpus);
  request.ports = options.ports;
  container::check_request(kept.engine, request);
  if (const auto note = note_on_groups(kept.engine, request); !note.empty()) {
    std::cerr << speaker(context) << "note: " << note << '\n';
  }
  for (const auto& port : request.ports) {
    if (const auto note = container::note_on_port(port); !note.empty()) {
      std::cerr << speaker(context) << "note: " << printable(note) << '\n';
    }
  }
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
  const auto site = std::make_shared<ClaimSite>(open_claim_site(context, SiteUse::kTake));
  try {
    auto acquired = acquire(acquire_options(options, wish, *site, kept), *site, context, status);
    if (!acquired) return false;
    kept.devices = container::wanted_devices(acquired->snapshot, acquired->allocation.ids);
    add_memory_limit(kept.request.variables, acquired->assignments);
    kept.claim = std::move(acquired->allocation.claim);
    kept.site = site;  // the claim refers to its folder
    kept.watch = acquired->watch;
  } catch (const Error& error) {
    if (!wish.is_default || error.code() != ErrorCode::kNotFound) throw;
    std::cerr << speaker(context) << "note: " << error.what()
              << "; the container gets no device. --gpu none says that this is meant\n";
  }
  return true;
}

int run_container(Context& context, const std::function<std::optional<KeptContainer>(int& status)>& prepare,
                  bool is_detached) {
  context.out.flush();
  return keep::run_container({.prepare = prepare, .is_detached = is_detached}, context.environment, teller(context));
}

container::Variables variables_of_user(const ContainerOptions& options, const Environment& environment) {
  container::Variables variables;
  for (const auto& text : options.variables) {
    const auto equals = text.find('=');
    auto name = text.substr(0, equals);
    const auto value = equals == text.npos ? environment.find(name) : text.substr(equals + 1);
    constexpr std::string_view kPrefix = variable::kContainerSetPrefix;
    if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());  // `yoke jupyter install`
    if (name.empty()) throw Error(ErrorCode::kInvalidArgument, "-e {}: give NAME=VALUE or NAME", printable(text));
    if (!value) continue;
    container::check_variable("-e " + name, name, *value);
    variables.emplace_back(name, *value);
  }
  return variables;
}

const std::string& working_folder_inside(const ContainerOptions& options) {
  if (options.working_folder.starts_with('/')) return options.working_folder;
  throw Error(ErrorCode::kInvalidArgument, "-w {}: give an absolute path, the folder in the container",
              printable(options.working_folder));
}

container::Foreground foreground_of_streams() {
  const bool reads_terminal = isatty(STDIN_FILENO) != 0;
  if (!reads_terminal) return container::Foreground::kPipes;
  return isatty(STDOUT_FILENO) != 0 ? container::Foreground::kTerminal : container::Foreground::kNoInput;
}

void add_engine_and_volumes(CLI::App& cmd, ContainerOptions& options) {
  add_value(cmd, "--engine", options.engine, "podman|docker|apptainer",
            "Which engine of containers; otherwise the site's, or else the first that works");
  add_value(cmd, "-v,--volume", options.volumes, "FOLDER:PATH[:ro]",
            "Mount FOLDER at PATH in the container, which also has the working directory at /workspace")
      ->take_all();
}

void add_variables(CLI::App& cmd, ContainerOptions& options, const char* names) {
  add_value(cmd, names, options.variables, "NAME[=VALUE]", "Set a variable in the container; NAME alone passes it on")
      ->take_all();
}

void add_working_folder(CLI::App& cmd, ContainerOptions& options, const char* help) {
  add_value(cmd, "-w,--workdir", options.working_folder, "PATH", help);
}

void add_container_options(CLI::App& cmd, ContainerOptions& options, const char* names_of_variable) {
  add_engine_and_volumes(cmd, options);
  add_variables(cmd, options, names_of_variable);
  add_value(cmd, "--extension", options.extension, "FILE", "Python packages of `yoke container extend`, for Apptainer");
}

}  // namespace yoke::cli
