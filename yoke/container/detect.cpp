#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/container/engine.h"

namespace yoke::container {
namespace {

ProcessLimits limits_of(pid_t pid) {
  const auto folder = fmt::format("/proc/{}/", pid);
  try {
    auto limits = parse_process_limits(read_file(folder + "limits"), read_file(folder + "status"));
    // podman lowers its own limit to this, so it cannot give more.
    const auto text = read_file("/proc/sys/kernel/pid_max");
    const auto most = parse_int(text.substr(0, text.find('\n')));
    if (most && (limits.num_processes == kUnlimited || *most < limits.num_processes)) limits.num_processes = *most;
    return limits;
  } catch (const Error&) {
    return {.can_raise = true};
  }
}

/// The process that listens for docker's clients; nullopt if it is not known.
std::optional<pid_t> docker_daemon(const Environment& environment) {
  auto path = environment.value_or("DOCKER_HOST", "unix:///var/run/docker.sock");
  if (!path.starts_with("unix://")) return std::nullopt;
  path.erase(0, 7);
  sockaddr_un address = {.sun_family = AF_UNIX};
  if (path.size() >= sizeof address.sun_path) return std::nullopt;
  path.copy(static_cast<char*>(address.sun_path), path.size());
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || connect(fd.value(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return std::nullopt;
  const auto peer = peer_of(fd.value());
  return peer && peer->pid > 0 ? std::optional(peer->pid) : std::nullopt;
}

[[noreturn]] void refuse_engine(const Engine& engine, const CommandOutput& output) {
  throw Error(ErrorCode::kUnavailable, "{} does not work here: {}", name(engine.kind),
              printable(output.err.empty() ? output.out : output.err).substr(0, 500));
}

void ask_podman(Engine& engine, const Environment& environment) {
  engine.is_rootless = geteuid() != 0;
  engine.limits = limits_of(getpid());
  engine.has_message_queues = std::filesystem::exists("/dev/mqueue");
  for (const auto* folder : {"/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"}) {
    if (std::filesystem::exists(std::filesystem::path(folder) / "oci-nvidia-hook.json")) engine.has_nvidia_hook = true;
  }
  if (!engine.is_rootless) return;
  const auto runtime = run_quietly({engine.program, "info", "--format", "{{.Host.OCIRuntime.Name}}"}, environment);
  if (runtime.status != 0) refuse_engine(engine, runtime);
  engine.can_keep_groups = runtime.out.starts_with("crun");
}

void ask_docker(Engine& engine, const Environment& environment) {
  const auto host = environment.find("DOCKER_HOST");
  if (host && !host->starts_with("unix://")) {
    throw Error(ErrorCode::kFailedPrecondition,
                "DOCKER_HOST is {}: that daemon runs on another machine, whose devices yoke cannot see; unset it",
                printable(*host));
  }
  const auto version = run_quietly({engine.program, "version", "--format", "{{json .}}"}, environment);
  const auto info = run_quietly({engine.program, "info", "--format", "{{json .}}"}, environment);
  try {
    read_docker_facts(engine, version.out, info.out);
  } catch (const Error&) {
    refuse_engine(engine, version);
  }
  if (const auto daemon = docker_daemon(environment)) engine.limits = limits_of(*daemon);
}

}  // namespace

std::optional<Engine> find_engine(EngineKind kind, const Environment& environment) {
  const auto program = find_tool(name(kind), environment);
  if (!program) return std::nullopt;
  Engine engine{.kind = kind, .program = *program};
  const auto answer = run_quietly({program->native(), "--version"}, environment);
  const auto version = parse_version(answer.out);
  if (answer.status != 0 || !version) refuse_engine(engine, answer);
  if (answer.out.starts_with("podman")) engine.kind = EngineKind::kPodman;  // the package podman-docker
  engine.version = *version;
  if (engine.kind == EngineKind::kPodman) ask_podman(engine, environment);
  if (engine.kind == EngineKind::kDocker) ask_docker(engine, environment);
  complete_facts(engine);
  if (engine.has_cdi) engine.cdi = read_cdi(cdi_folders());
  return engine;
}

Engine choose_engine(std::optional<EngineKind> wanted, std::string_view image, const Environment& environment) {
  std::error_code ignored;
  const bool is_file = !image.empty() && (image.front() == '/' || image.front() == '.' || image.ends_with(".sif")) &&
                       std::filesystem::exists(image, ignored);
  if (!wanted && is_file) wanted = EngineKind::kApptainer;
  if (wanted) {
    if (auto engine = find_engine(*wanted, environment)) return *engine;
    throw Error(ErrorCode::kNotFound, "{} is not installed: PATH has no such program", name(*wanted));
  }
  std::string reasons;
  for (const auto kind : {EngineKind::kPodman, EngineKind::kDocker, EngineKind::kApptainer}) {
    try {
      if (auto engine = find_engine(kind, environment)) return *engine;
    } catch (const Error& error) {
      reasons += fmt::format("; {}", error.what());
    }
  }
  if (!reasons.empty()) throw Error(ErrorCode::kUnavailable, "no container engine works here{}", reasons);
  throw Error(ErrorCode::kNotFound,
              "there is no container engine: PATH has neither podman nor docker nor apptainer; install one of them");
}

}  // namespace yoke::container
