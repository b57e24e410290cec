// `yoke container run`: start a container that has claimed devices, and check in it that it has them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/quantity.h"
#include "yoke/base/text.h"
#include "yoke/cli/container.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/container_keeper.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/claim.h"
#include "yoke/container/config.h"
#include "yoke/container/image.h"
#include "yoke/device/process/info.h"

namespace yoke::cli {
namespace {

struct ContainerRunArgs {
  std::string engine, name, network, extension, shared_memory, length, wait;
  std::optional<std::string> gpu;
  DeviceOptions device;
  std::vector<std::string> volumes, variables;
  double deadline_s = 1;
  bool prints = false, json = false, detaches = false;
};

/// Which devices the user wants.
struct DeviceWish {
  bool is_none = false;
  bool is_default = false;
  std::optional<int64_t> num_devices;
  std::vector<std::string> ids;
};

DeviceWish device_wish(const ContainerRunArgs& args) {
  DeviceWish wish{.ids = args.device.chosen};
  if (!args.gpu) {
    wish.is_default = wish.ids.empty();
    return wish;
  }
  if (!wish.ids.empty()) throw Error(ErrorCode::kInvalidArgument, "give --gpu or --device, not both");
  if (args.gpu->empty() || *args.gpu == "none") {
    wish.is_none = true;
  } else if (const auto number = parse_int(*args.gpu)) {
    if (*number < 0) throw Error(ErrorCode::kInvalidArgument, "--gpu {}: give how many devices, or which", *number);
    if (*number == 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--gpu 0: a number is how many devices; write --gpu none for no device, or --device 0 for device 0");
    }
    wish.num_devices = number;
  } else {
    wish.ids = {*args.gpu};
  }
  return wish;
}

/// The image and the command. `words` is the whole command line, in which a "--" right before `rest` means that the
/// site's image is wanted.
struct ImageAndCommand {
  std::string image;
  std::vector<std::string> command;
};

ImageAndCommand split_rest(const Context& context, const container::SiteRules& rules) {
  auto rest = context.rest;
  const auto begin = context.words.size() - rest.size();
  const bool has_image = !rest.empty() && !(begin > 0 && context.words[begin - 1] == "--");
  ImageAndCommand result;
  if (has_image) {
    result.image = rest[0];
    rest.erase(rest.begin());
    if (!rest.empty() && rest[0] == "--") rest.erase(rest.begin());
  } else if (rules.default_image) {
    result.image = *rules.default_image;
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                "say which image, as in `yoke container run IMAGE -- python train.py`; this site has no default_image");
  }
  result.command = std::move(rest);
  return result;
}

container::User this_user() {
  container::User user{.uid = geteuid(), .gid = getegid(), .groups = {}, .name = device::user_name(geteuid())};
  user.groups.resize(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
  const int count = getgroups(static_cast<int>(user.groups.size()), user.groups.data());
  user.groups.resize(static_cast<size_t>(std::max(count, 0)));
  return user;
}

/// "pytorch-1f3a": the last part of the image's name, and a random number.
std::string something(const std::string& image) {
  auto part = std::string(base_name(image));
  part = part.substr(0, part.find_first_of(":@"));
  if (part.ends_with(".sif")) part.resize(part.size() - 4);
  uint32_t random = 0;
  [[maybe_unused]] const auto count = getrandom(&random, sizeof random, 0);
  return fmt::format("{}-{:06x}", container::name_part(part), random & 0xffffff);
}

container::Foreground foreground(const ContainerRunArgs& args) {
  if (args.detaches) return container::Foreground::kDetached;
  const bool reads_terminal = isatty(STDIN_FILENO) != 0;
  if (!reads_terminal) return container::Foreground::kPipes;
  return isatty(STDOUT_FILENO) != 0 ? container::Foreground::kTerminal : container::Foreground::kNoInput;
}

std::vector<container::Mount> mounts_of_user(const ContainerRunArgs& args) {
  std::vector<container::Mount> mounts;
  for (const auto& text : args.volumes) {
    mounts.push_back(container::parse_mount(text, std::filesystem::current_path()));
    const auto& source = mounts.back().source;
    std::error_code error;
    if (source.starts_with('/') && !std::filesystem::exists(source, error)) {
      throw Error(ErrorCode::kNotFound, "-v {}: {} does not exist", printable(text), printable(source));
    }
  }
  return mounts;
}

container::Variables variables_of_user(const ContainerRunArgs& args, const Environment& environment) {
  container::Variables variables;
  for (const auto& text : args.variables) {
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

std::optional<int64_t> shared_bytes(const ContainerRunArgs& args) {
  if (args.shared_memory.empty()) return std::nullopt;
  const auto bytes = parse_memory(args.shared_memory);
  if (bytes) return bytes;
  throw Error(ErrorCode::kInvalidArgument, "--shm-size {}: give a size with its unit, such as 16GiB",
              args.shared_memory);
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

/// Everything but the devices.
KeptContainer describe_container(const ContainerRunArgs& args, Context& context) {
  const auto rules = container::read_rules(context.environment);
  auto [image, command] = split_rest(context, rules);
  image = container::full_image_name(image);
  auto wanted = args.engine.empty() ? rules.default_engine : container::parse_engine_kind(args.engine);
  KeptContainer kept;
  kept.engine = container::choose_engine(wanted, image, context.environment);
  image = container::image_for(kept.engine.kind, image);
  if (args.detaches && kept.engine.kind == container::EngineKind::kApptainer) {
    throw Error(ErrorCode::kInvalidArgument,
                "apptainer runs no container in the background; leave --detach out, and use nohup or tmux");
  }
  auto& request = kept.request;
  request.user = this_user();
  const auto user = container::name_part(request.user.name);
  request.name = container::named(rules.container_name, user,
                                  args.name.empty() ? something(image) : container::name_part(args.name));
  request.image = image;
  request.foreground = foreground(args);
  request.mounts = mounts_of_user(args);
  request.folder = std::filesystem::current_path();
  request.init = context.installation.libexec / "container-init";
  request.command = context.installation.executable;
  request.variables = variables_of_user(args, context.environment);
  if (!args.network.empty()) request.network = args.network;
  if (!args.extension.empty()) request.extension = find_extension(args.extension, kept.engine);
  request.shared_bytes = shared_bytes(args);
  request.host_memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  auto facts = container::find_image(kept.engine, image, context.environment);
  if (!facts && !args.prints) {  // before devices are claimed, because a download may take long
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

AcquireOptions acquire_options(const ContainerRunArgs& args, const DeviceWish& wish, const ClaimSite& site,
                               const KeptContainer& kept) {
  AcquireOptions options{.device = args.device, .needs_details = true};
  options.device.deadline_s = args.deadline_s;
  options.device.chosen = wish.ids;
  auto& request = options.request;
  request.wish.num_devices = wish.num_devices.value_or(wish.ids.empty() ? 1 : 0);
  request.is_dry = args.prints;
  if (!args.length.empty()) request.length = length_of("--for", args.length);
  if (geteuid() != 0 && site.config.longest && (!request.length || *request.length > *site.config.longest)) {
    throw Error(ErrorCode::kInvalidArgument, "this site limits claims to {} s; give --for with at most that",
                site.config.longest->count());
  }
  request.note.purpose = "container " + kept.request.name;
  options.waits = !args.wait.empty();
  if (options.waits && args.wait != "forever") options.wait_limit = length_of("--wait", args.wait);
  return options;
}

/// Claims the devices. Returns false with `status` if that was interrupted.
bool take_devices(const ContainerRunArgs& args, KeptContainer& kept, Context& context, int& status) {
  const auto wish = device_wish(args);
  if (wish.is_none) return true;
  const auto site = std::make_shared<ClaimSite>(open_claim_site(context));
  try {
    const auto options = acquire_options(args, wish, *site, kept);
    auto acquired = acquire(options, *site, context, status);
    if (!acquired) return false;
    kept.devices = container::wanted_devices(acquired->snapshot, acquired->allocation.ids);
    kept.claim = std::move(acquired->allocation.claim);
    kept.site = site;  // the claim refers to its folder
    kept.ledger = &site->ledger;
    auto device = options.device;
    device.chosen = acquired->allocation.ids;
    kept.watch = {.ids = device.chosen, .limits = site->config.idle, .open = [device] { return open_source(device); }};
  } catch (const Error& error) {
    if (!wish.is_default || error.code() != ErrorCode::kNotFound) throw;
    std::cerr << speaker(context) << "note: " << error.what()
              << "; the container gets no device. --gpu none says that this is meant\n";
  }
  return true;
}

int print_container(const ContainerRunArgs& args, KeptContainer kept, Context& context) {
  int status = kExitOk;
  if (!take_devices(args, kept, context, status)) return status;
  kept.request.meeting = meeting_parent(context.environment) / ".yoke-container-XXXXXX";
  const auto grant = container::grant_devices(kept.engine, kept.devices);
  const auto argv = container::plan_container(kept.engine, kept.request, grant);
  if (args.json) {
    context.out << nlohmann::json(argv).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    for (const auto& word : argv) context.out << word << '\n';
  }
  return kExitOk;
}

int run_container_command(const ContainerRunArgs& args, Context& context) {
  if (args.json && !args.prints) throw Error(ErrorCode::kInvalidArgument, "--json is for --print");
  device_wish(args);  // before anything is downloaded
  // podman looks for the subordinate ids of this user by its name in the environment.
  for (const auto* name : {"USER", "LOGNAME"}) context.environment.set(name, device::user_name(geteuid()));
  auto kept = describe_container(args, context);
  if (args.prints) return print_container(args, std::move(kept), context);
  const auto name = kept.request.name;
  const int result = run_container(
      context,
      [&](int& status) -> std::optional<KeptContainer> {
        if (!take_devices(args, kept, context, status)) return std::nullopt;
        return std::move(kept);
      },
      args.detaches);
  if (args.detaches && result == kExitOk) context.out << name << std::endl;
  return result;
}

}  // namespace

void add_container_run(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<ContainerRunArgs>();  // CLI11 keeps references to it; the callback owns it
  auto program = std::make_shared<std::vector<std::string>>();
  cmd.add_option("--engine", args->engine, "Which engine; otherwise the site's, or else the first that works")
      ->type_name("podman|docker|apptainer");
  cmd.add_option("--gpu,--gpus", args->gpu,
                 "How many devices to claim, or which (0,1 or UUIDs); none or \"\" for no device. Otherwise 1")
      ->type_name("N|IDS|none");
  add_device_choice(cmd, args->device.chosen, "-d,--device", "Take these devices: ids as in `yoke devices`",
                    ChoiceForm::kOneWord);
  cmd.add_option("-v,--volume", args->volumes,
                 "Mount FOLDER at PATH in the container, which also has the working directory at /workspace")
      ->type_name("FOLDER:PATH[:ro]")
      ->take_all();
  cmd.add_option("-e,--env", args->variables, "Set a variable in the container; NAME alone passes it on")
      ->type_name("NAME[=VALUE]")
      ->take_all();
  cmd.add_option("--name", args->name,
                 "The name of the container is USER_TEXT; otherwise the image's name and a number")
      ->type_name("TEXT");
  cmd.add_option("--extension", args->extension, "Python packages of `yoke container extend`, for Apptainer")
      ->type_name("FILE");
  cmd.add_option("--network", args->network, "The engine's network: host, none, or a name")->type_name("NETWORK");
  cmd.add_option("--shm-size", args->shared_memory, "A /dev/shm of this size, such as 16GiB, instead of the host's")
      ->type_name("SIZE");
  cmd.add_option("--for", args->length, "How long: 90s, 30m, 4h, 1d12h. The container is then ended (SIGTERM)")
      ->type_name("TIME");
  cmd.add_option("--wait", args->wait, "Queue until devices are free, for at most TIMEOUT (10m, 2h)")
      ->type_name("[TIMEOUT]");
  cmd.add_flag("--detach", args->detaches, "Print the container's name when its program starts, and return");
  cmd.add_flag("--print", args->prints, "Print the engine's command line, an argument a line, and start nothing");
  cmd.add_flag("--json", args->json, "With --print: print a JSON list");
  cmd.add_option("--deadline", args->deadline_s, "How long drivers may take to answer")
      ->type_name("SECONDS")
      ->check(in_range(0.001, 86'400, "seconds"))
      ->capture_default_str();
  cmd.add_option("IMAGE", *program, "The image, and after it the program; without IMAGE, the site's, as in `-- bash`")
      ->type_name(kProgramArguments)
      ->expected(0, -1);
  cmd.footer(
      examples("  yoke container run ngc/pytorch:25.05-py3 -- python train.py\n"
               "  yoke container run --gpu 2 --wait -v /data:/data:ro my-image -- yoke run -n 2 -- ./train\n"
               "  yoke container run --gpu none debian:12 -- bash\n"
               "  yoke container run --engine apptainer ./lab.sif -- python train.py\n"
               "  yoke container run --gpu 2 --print my-image    the command line that would start it\n"
               "\n"
               "Exit status: the program's; 69 if the container does not have the devices that it should, 75 if not\n"
               "enough devices are free, 124 if the wait took too long, 125 if the engine could not start it,\n"
               "126 and 127 if the program cannot be executed or is not found."));
  cmd.callback([args, program, &context] { context.exit_code = run_container_command(*args, context); });
}

}  // namespace yoke::cli
