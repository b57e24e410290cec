#include "yoke/container/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/container/detail/engines.h"
#include "yoke/container/extend.h"
#include "yoke/contract/variables.h"

namespace yoke::container {
namespace {

/// A field of a line of CSV.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == text.npos) return text;
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? "\"\"" : std::string(1, c);
  return field + '"';
}

/// The value of --mount, which engines read as a line of CSV, so that a path may have any characters. `more`: options.
std::string mount_value(const std::string& source, const std::string& target, std::string_view more = "") {
  return fmt::format("type=bind,{},{}{}", csv_field("source=" + source), csv_field("destination=" + target), more);
}

/// --memory and --cpus, which all engines know.
void add_group_limits(Words& words, const Request& request) {
  if (request.memory_bytes) add(words, {"--memory", std::to_string(*request.memory_bytes)});
  if (request.num_cpus) add(words, {"--cpus", fmt::format("{}", *request.num_cpus)});
}

/// The limit to ask for: `wanted`, or less if the engine cannot give that.
std::string limit_text(int64_t wanted, int64_t hard, bool can_raise) {
  const bool is_enough = can_raise || hard == kUnlimited || (wanted != kUnlimited && wanted <= hard);
  return fmt::format("{0}:{0}", is_enough ? wanted : hard);
}

/// Rootless engines cannot mount the message queues of the host's IPC, but can show its folder: podman does so itself,
/// and so do later versions of docker. Without the folder, a /dev/shm of half of the memory comes close.
void add_shared_memory(Words& words, const Engine& engine, const Request& request) {
  if (!request.shared_bytes && (!engine.is_rootless || engine.has_message_queues)) {
    add(words, {"--ipc=host"});
    if (engine.is_rootless && engine.kind == EngineKind::kDocker) {
      add(words, {"--volume", fmt::format("{0}:{0}", kMessageQueues)});
    }
    return;
  }
  const auto bytes = request.shared_bytes.value_or(request.host_memory_bytes / 2);
  add(words, {"--ipc=private", fmt::format("--shm-size={}", bytes)});
}

/// Names the containers of one keeper.
std::string meeting_label(const std::filesystem::path& meeting) {
  return fmt::format("{}={}", kMeetingLabel, meeting.native());
}

/// What podman and docker have in common: everything between `run` and the options that differ.
Words plan_common(const Engine& engine, const Request& request) {
  Words words = {engine.program, "run", "--rm", "--name", request.name};
  add(words, {"--label", fmt::format("{}={}", kLabel, request.user.uid)});
  // The id in a file would come too late: an engine can be interrupted between making a container and writing it.
  add(words, {"--label", meeting_label(request.meeting)});
  add_pull(words, engine);
  add_streams(words, request.foreground);
  // SELinux would keep the container from the folders, the socket and the devices.
  add(words, {"--security-opt", "label=disable"});
  add_shared_memory(words, engine, request);
  add_limits(words, engine);
  add_group_limits(words, request);
  if (request.network) add(words, {"--network", *request.network});
  for (const auto& port : request.ports) add(words, {"--publish", published_port(port)});
  return words;
}

/// All mounts, with those of yoke itself.
std::vector<Mount> mounts_of(const Request& request) {
  // A program can connect to the socket in a folder that is read-only, and must not change the id, which names what is
  // removed.
  std::vector<Mount> mounts = {{request.folder, kWorkspace},
                               {request.init, kInitInside, true},
                               {request.command, kCommandInside, true},
                               {request.meeting, kMeetingInside, true}};
  mounts.insert(mounts.end(), request.mounts.begin(), request.mounts.end());
  return mounts;
}

/// Variables that yoke sets unless the user does, except those for devices.
Variables own_variables(const Engine& engine, const Request& request) {
  if (request.user.uid == 0) return {};
  // Images do not know this user, so programs that ask for the name or a home would fail or write to /.
  Variables variables = {{"USER", request.user.name}, {"LOGNAME", request.user.name}};
  if (engine.kind != EngineKind::kApptainer) variables.emplace_back("HOME", "/tmp");
  for (const auto& users : request.variables) {
    std::erase_if(variables, [&](const auto& one) { return one.first == users.first; });
  }
  return variables;
}

/// The variables of the user, each once.
Variables users_variables(const Request& request) {
  Variables variables;
  for (const auto& variable : request.variables) {
    std::erase_if(variables, [&](const auto& one) { return one.first == variable.first; });
    variables.push_back(variable);
  }
  return variables;
}

/// Apptainer has no daemon, no names and no log. A PID namespace without its own first process (--no-init) makes
/// container-init the first, so that its end is the end of all processes in the container. With --contain, the home of
/// the user is an empty folder in memory.
Client plan_apptainer(const Engine& engine, const Request& request, const DeviceGrant& grant) {
  Client client;
  // Its option --env splits values at commas.
  const auto set = [&](const std::string& name, const std::string& value) {
    client.variables.emplace_back("APPTAINERENV_" + name, value);
  };
  for (const auto& [name, value] : own_variables(engine, request)) set(name, value);
  for (const auto& [name, value] : users_variables(request)) {
    set(name == "HOME" ? variable::kContainerSetPrefix + name : name, value);  // Apptainer refuses it
  }
  for (const auto& [name, value] : grant.variables) set(name, value);
  if (!request.extension.empty()) {
    set("PREPEND_PATH", std::string(kExtensionInside) + "/bin");  // Apptainer's way to extend PATH
    set("VIRTUAL_ENV", kExtensionInside);
  }
  auto& words = client.argv;
  add(words, {engine.program, "exec", "--pid", "--no-init", "--cleanenv", "--contain"});
  if (engine.version >= Version{1, 1, 0}) add(words, {"--no-eval"});
  add(words, {engine.version >= Version{1, 2, 0} ? "--cwd" : "--pwd", request.working_folder});
  // With --contain these would be small file systems in memory.
  for (const auto* folder : {"/tmp", "/var/tmp"}) add(words, {"--bind", folder});
  for (const auto& mount : mounts_of(request)) add_mount(words, engine, mount);
  if (!request.extension.empty()) {
    add(words, {"--mount", mount_value(request.extension, kExtensionInside, ",image-src=/")});
  }
  add_group_limits(words, request);
  if (request.network && *request.network != "host") add(words, {"--net", "--network", *request.network});
  words.insert(words.end(), grant.arguments.begin(), grant.arguments.end());
  add(words, {request.image, kInitInside});
  words.insert(words.end(), request.program.begin(), request.program.end());
  return client;
}

void add_podmans(Words& words, const Engine& engine, const Request& request) {
  // The driver journald, podman's default on some systems, has no limit of size.
  add(words, {"--log-driver", "k8s-file", "--log-opt", fmt::format("max-size={}", request.log_bytes)});
  // Otherwise the image's own user would run, who is a stranger to the folders and to the keeper.
  add(words, {"--user", fmt::format("{}:{}", request.user.uid, request.user.gid)});
  // This user is the same user in the container, whatever PODMAN_USERNS or containers.conf say.
  add(words, {"--userns", engine.is_rootless ? "keep-id" : "host"});
  if (engine.can_keep_groups) add(words, {"--group-add", "keep-groups"});
}

void add_dockers(Words& words, const Engine& engine, const Request& request) {
  add(words, {"--log-driver", "json-file", "--log-opt", fmt::format("max-size={}", request.log_bytes), "--log-opt",
              "max-file=1"});
  if (engine.remaps_ids) add(words, {"--userns", "host"});
  if (request.user.uid == 0 || engine.is_rootless) {
    return add(words, {"--user", "0:0"});  // in a rootless daemon's containers, root is this user already
  }
  add(words, {"--user", fmt::format("{}:{}", request.user.uid, request.user.gid)});
  for (const auto group : request.user.groups) {
    if (group != request.user.gid) add(words, {"--group-add", std::to_string(group)});
  }
}

}  // namespace

void add_limits(Words& words, const Engine& engine) {
  constexpr int64_t kFiles = 1 << 20;
  constexpr int64_t kStack = 64 << 20;  // what NVIDIA's images ask for
  const auto& limits = engine.limits;
  const auto limit = [&](const char* name, int64_t wanted, int64_t hard) {
    add(words, {"--ulimit", fmt::format("{}={}", name, limit_text(wanted, hard, limits.can_raise))});
  };
  limit("nofile", kFiles, limits.num_files);
  limit("memlock", kUnlimited, limits.locked_bytes);
  limit("stack", kStack, limits.stack_bytes);
  if (!limits.can_raise && limits.num_processes != kUnlimited) limit("nproc", limits.num_processes, kUnlimited);
}

void add_mount(Words& words, const Engine& engine, const Mount& mount) {
  // Apptainer's --bind splits paths at colons and commas. --volume of podman and docker splits them at colons, but it
  // also takes the names of volumes.
  const bool is_path = mount.source.starts_with('/');
  const bool has_colon = (mount.source + mount.target).find(':') != std::string::npos;
  if (engine.kind == EngineKind::kApptainer || (is_path && has_colon)) {
    return add(words, {"--mount", mount_value(mount.source, mount.target, mount.is_read_only ? ",ro" : "")});
  }
  add(words, {"--volume", fmt::format("{}:{}{}", mount.source, mount.target, mount.is_read_only ? ":ro" : "")});
}

Mount parse_mount(const std::string& text, const std::filesystem::path& folder) {
  const auto parts = split(text, ':');
  const bool has_mode = parts.size() == 3 && (parts[2] == "ro" || parts[2] == "rw");
  if ((parts.size() != 2 && !has_mode) || parts[0].empty() || !parts[1].starts_with('/')) {
    throw Error(ErrorCode::kInvalidArgument,
                "-v {}: give FOLDER:PATH or FOLDER:PATH:ro, where PATH is absolute, the place in the container",
                printable(text));
  }
  Mount mount{std::string(parts[0]), std::string(parts[1]), has_mode && parts[2] == "ro"};
  const bool is_path = mount.source.find('/') != std::string::npos || mount.source == "." || mount.source == "..";
  if (is_path) mount.source = (folder / mount.source).lexically_normal();
  return mount;
}

Variables parse_variable_file(const std::string& text, const std::string& file, const Environment& environment) {
  Variables variables;
  size_t number = 0;
  for (auto line : lines_of(text)) {
    ++number;
    if (number == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);  // a byte order mark
    if (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty() || line.starts_with('#')) continue;
    const auto equals = line.find('=');
    const std::string name(line.substr(0, equals));
    if (name.empty() || name.find_first_of(" \t") != name.npos) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--env-file {}, line {}: give NAME=VALUE or NAME, where the name has no blanks, as docker wants it",
                  printable(file), number);
    }
    const auto value = equals != line.npos ? std::string(line.substr(equals + 1)) : environment.find(name);
    if (!value) continue;
    check_variable(fmt::format("--env-file {}, line {}", file, number), name, *value);
    variables.emplace_back(name, *value);
  }
  return variables;
}

std::string published_port(const std::string& text) {
  const auto address = text.find(']');  // of IPv6
  const auto num_colons = std::ranges::count(text, ':');
  if (address != text.npos || num_colons > 1) return text;
  return (num_colons == 1 ? "127.0.0.1:" : "127.0.0.1::") + text;
}

std::string note_on_port(const std::string& text) {
  const auto published = published_port(text);
  if (published == text) return "";
  constexpr std::string_view kLoopback = "127.0.0.1";
  return fmt::format("only programs on this machine reach port {}; -p 0.0.0.0{} opens it to all hosts",
                     text.substr(0, text.find_first_of(":/")), published.substr(kLoopback.size()));
}

void add(Words& words, std::initializer_list<std::string> more) { words.insert(words.end(), more); }

void add_streams(Words& words, Foreground foreground) {
  if (foreground == Foreground::kDetached) add(words, {"--detach"});
  if (foreground == Foreground::kPipes) add(words, {"--interactive"});
  if (foreground == Foreground::kTerminal) add(words, {"--interactive", "--tty"});
}

void add_pull(Words& words, const Engine& engine) {
  if (engine.knows_pull) add(words, {"--pull=never"});
}

void check_request(const Engine& engine, const Request& request) {
  if (engine.kind != EngineKind::kApptainer) return;
  if (request.shared_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                "--shm-size: apptainer has no such option, and gives each container a /dev/shm of half of the memory; "
                "leave it out");
  }
  if (!request.ports.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "-p {}: apptainer's containers are in the host's network, so a program's ports are open there; leave "
                "-p out",
                printable(request.ports[0]));
  }
  if ((request.memory_bytes || request.num_cpus) && engine.version < Version{1, 1, 0}) {
    throw Error(ErrorCode::kInvalidArgument, "--memory and --cpus need apptainer 1.1 or later, and this is {}",
                engine.version.text());  // changelog of Apptainer 1.1.0
  }
}

std::optional<std::string> missed_limit(const Engine& engine, const Request& request, const CgroupLimits& limits) {
  constexpr double kRounding = 0.01;  // the kernel counts CPUs in microseconds of 0.1 s
  const auto missed = [&](const char* option, const std::string& what) {
    return fmt::format(
        "{}'s {} did not take effect: the container {}. A user's engine needs control groups of version 2 that systemd "
        "has delegated",
        name(engine.kind), option, what);
  };
  if (request.memory_bytes && limits.memory_bytes.value_or(INT64_MAX) > *request.memory_bytes) {
    return missed("--memory", limits.memory_bytes ? "may use " + format_bytes(*limits.memory_bytes)
                                                  : std::string("may use all memory"));
  }
  if (request.num_cpus && (!limits.cpus || *limits.cpus > *request.num_cpus + kRounding)) {
    return missed("--cpus",
                  limits.cpus ? fmt::format("may use {:.4g} CPUs", *limits.cpus) : std::string("may use all CPUs"));
  }
  return std::nullopt;
}

Client plan_container(const Engine& engine, const Request& request, const DeviceGrant& grant) {
  if (engine.kind == EngineKind::kApptainer) return plan_apptainer(engine, request, grant);
  Client client{.argv = plan_common(engine, request)};
  auto& words = client.argv;
  (engine.kind == EngineKind::kPodman ? add_podmans : add_dockers)(words, engine, request);
  add(words, {"--workdir", request.working_folder});
  for (const auto& mount : mounts_of(request)) add_mount(words, engine, mount);
  for (const auto& [name, value] : own_variables(engine, request)) add(words, {"--env", name + "=" + value});
  for (const auto& [name, value] : users_variables(request)) {
    // Values are often secrets, and everybody can read command lines. The others keep their names, because hooks of an
    // engine read some of them, such as NVIDIA_DRIVER_CAPABILITIES.
    const auto given = is_read_by_clients(name) ? variable::kContainerSetPrefix + name : name;
    add(words, {"--env", given});
    client.variables.emplace_back(given, value);
  }
  for (const auto& [name, value] : grant.variables) add(words, {"--env", name + "=" + value});
  words.insert(words.end(), grant.arguments.begin(), grant.arguments.end());
  add(words, {"--entrypoint", kInitInside, request.image});
  words.insert(words.end(), request.program.begin(), request.program.end());
  return client;
}

Words plan_listing(const Engine& engine, const std::filesystem::path& meeting) {
  if (engine.kind == EngineKind::kApptainer) return {};
  return {engine.program, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label=" + meeting_label(meeting)};
}

Words plan_removal(const Engine& engine, const std::string& id) {
  if (engine.kind == EngineKind::kApptainer) return {};
  return {engine.program, "rm", "--force", id};
}

}  // namespace yoke::container
