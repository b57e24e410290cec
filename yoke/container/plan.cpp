#include "yoke/container/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/container/detail/engines.h"

namespace yoke::container {
namespace {

/// The limit to ask for: `wanted`, or less if the engine cannot give that.
std::string limit_text(int64_t wanted, int64_t hard, bool can_raise) {
  const bool is_enough = can_raise || hard == kUnlimited || (wanted != kUnlimited && wanted <= hard);
  return fmt::format("{0}:{0}", is_enough ? wanted : hard);
}

/// Rootless podman needs /dev/mqueue for the IPC of the host. Without it, a /dev/shm of half of the memory comes close.
void add_shared_memory(Words& words, const Engine& engine, const Request& request) {
  const bool can_share = !(engine.kind == EngineKind::kPodman && engine.is_rootless && !engine.has_message_queues);
  if (!request.shared_bytes && can_share) return add(words, {"--ipc=host"});
  const auto bytes = request.shared_bytes.value_or(request.host_memory_bytes / 2);
  add(words, {"--ipc=private", fmt::format("--shm-size={}", bytes)});
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

std::string volume(const Mount& mount) {
  return fmt::format("{}:{}{}", mount.source, mount.target, mount.is_read_only ? ":ro" : "");
}

void check_sources(const std::vector<Mount>& mounts) {
  for (const auto& mount : mounts) {
    if (mount.source.find_first_of(":,") == std::string::npos) continue;
    throw Error(ErrorCode::kInvalidArgument, "{}: engines cannot mount a path with a colon or a comma",
                printable(mount.source));
  }
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

std::vector<Mount> mounts_of(const Request& request) {
  // A program can connect to the socket in a folder that is read-only, and must not change the id, which names what is
  // removed.
  std::vector<Mount> mounts = {{request.folder, kWorkspace},
                               {request.init, kInitInside, true},
                               {request.command, kCommandInside, true},
                               {request.meeting, kMeetingInside, true}};
  mounts.insert(mounts.end(), request.mounts.begin(), request.mounts.end());
  check_sources(mounts);
  return mounts;
}

Variables variables_of(const Request& request) {
  Variables variables;
  if (request.user.uid != 0) {
    // Images do not know this user, so programs that ask for the name or a home would fail or write to /.
    variables = {{"USER", request.user.name}, {"LOGNAME", request.user.name}, {"HOME", "/tmp"}};
  }
  for (const auto& variable : request.variables) {
    std::erase_if(variables, [&](const auto& one) { return one.first == variable.first; });
    variables.push_back(variable);
  }
  return variables;
}

void add(Words& words, std::initializer_list<std::string> more) { words.insert(words.end(), more); }

/// Names the containers of one keeper.
std::string meeting_label(const std::filesystem::path& meeting) {
  return fmt::format("{}={}", kMeetingLabel, meeting.native());
}

Words plan_common(const Engine& engine, const Request& request) {
  Words words = {engine.program, "run", "--rm", "--name", request.name};
  add(words, {"--label", fmt::format("{}={}", kLabel, request.user.uid)});
  // The id in a file would come too late: an engine can be interrupted between making a container and writing it.
  add(words, {"--label", meeting_label(request.meeting), "--pull=never"});
  if (request.foreground == Foreground::kDetached) add(words, {"--detach"});
  if (request.foreground == Foreground::kPipes) add(words, {"--interactive"});
  if (request.foreground == Foreground::kTerminal) add(words, {"--interactive", "--tty"});
  // SELinux would keep the container from the folders, the socket and the devices.
  add(words, {"--security-opt", "label=disable"});
  add_shared_memory(words, engine, request);
  add_limits(words, engine);
  if (request.network) add(words, {"--network", *request.network});
  return words;
}

void add_rest(Words& words, const Request& request, const DeviceGrant& grant) {
  add(words, {"--workdir", request.working_folder});
  for (const auto& mount : mounts_of(request)) add(words, {"--volume", volume(mount)});
  for (const auto& [name, value] : variables_of(request)) {
    const auto& inherited = request.inherited;
    const bool is_inherited = std::find(inherited.begin(), inherited.end(), name) != inherited.end();
    add(words, {"--env", is_inherited ? name : name + "=" + value});  // all users can read a command line
  }
  for (const auto& [name, value] : grant.variables) add(words, {"--env", name + "=" + value});
  words.insert(words.end(), grant.arguments.begin(), grant.arguments.end());
  add(words, {"--entrypoint", kInitInside, request.image});
  words.insert(words.end(), request.program.begin(), request.program.end());
}

Words plan_container(const Engine& engine, const Request& request, const DeviceGrant& grant) {
  switch (engine.kind) {
    case EngineKind::kPodman: return plan_podman(engine, request, grant);
    case EngineKind::kDocker: return plan_docker(engine, request, grant);
    case EngineKind::kApptainer: return plan_apptainer(engine, request, grant);
  }
  throw Error(ErrorCode::kInternal, "the engine is not known");
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
