#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/container/detail/engines.h"
#include "yoke/container/image.h"

namespace yoke::container {
namespace {

constexpr std::string_view kUnixScheme = "unix://";

ProcessLimits limits_of(pid_t pid) {
  const auto folder = fmt::format("/proc/{}/", pid);
  try {
    auto limits =
        parse_process_limits(read_file(folder + "limits"), read_file(folder + "status"), read_file(folder + "uid_map"));
    // podman lowers its own limit to this, so it cannot give more.
    const auto text = read_file("/proc/sys/kernel/pid_max");
    const auto most = parse_int(text.substr(0, text.find('\n')));
    if (most && (limits.num_processes == kUnlimited || *most < limits.num_processes)) limits.num_processes = *most;
    return limits;
  } catch (const Error&) {
    return {.can_raise = true};
  }
}

/// The process that listens for docker's clients at unix://PATH; nullopt if it is not known.
std::optional<pid_t> docker_daemon(std::string path) {
  path.erase(0, kUnixScheme.size());
  sockaddr_un address = {.sun_family = AF_UNIX};
  if (path.size() >= sizeof address.sun_path) return std::nullopt;
  path.copy(static_cast<char*>(address.sun_path), path.size());
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || connect(fd.value(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return std::nullopt;
  const auto peer = peer_of(fd.value());
  return peer && peer->pid > 0 ? std::optional(peer->pid) : std::nullopt;
}

[[noreturn]] void refuse_engine(const Engine& engine, const CommandOutput& output) {
  auto text = output.err.empty() ? output.out : output.err;
  text = printable(text.substr(0, text.find_last_not_of(" \n") + 1)).substr(0, 500);
  if (engine.kind == EngineKind::kDocker && text.find("permission denied") != text.npos) {
    text += "; the administrator puts you into the group that owns the socket, or choose another engine by --engine";
  }
  throw Error(ErrorCode::kUnavailable, "{} does not work here: {}", name(engine.kind), text);
}

[[noreturn]] void refuse_remote(std::string_view where, std::string_view service, std::string_view next) {
  throw Error(ErrorCode::kFailedPrecondition, "{}: that {} runs on another machine, whose devices yoke cannot see; {}",
              printable(where), service, next);
}

void ask_podman(Engine& engine, const Environment& environment, std::chrono::milliseconds limit) {
  for (const auto* name : {"CONTAINER_HOST", "CONTAINER_CONNECTION"}) {
    const auto value = environment.find(name);
    if (!value || value->empty() || value->starts_with(kUnixScheme)) continue;
    refuse_remote(fmt::format("{} is {}", name, *value), "service of podman", "unset it");
  }
  engine.is_rootless = geteuid() != 0;
  engine.limits = limits_of(getpid());
  engine.has_message_queues = std::filesystem::exists(kMessageQueues);
  for (const auto* folder : {"/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"}) {
    if (std::filesystem::exists(std::filesystem::path(folder) / "oci-nvidia-hook.json")) engine.has_nvidia_hook = true;
  }
  if (!engine.is_rootless) return;
  const auto runtime = ask({engine.program, "info", "--format", "{{.Host.OCIRuntime.Name}}"}, environment, limit);
  if (runtime.status != 0) refuse_engine(engine, runtime);
  engine.can_keep_groups = runtime.out.starts_with("crun");
}

/// Where docker's daemon listens: by DOCKER_HOST, DOCKER_CONTEXT, or the context that the user's configuration has.
std::string docker_host(const Engine& engine, const Environment& environment, std::chrono::milliseconds limit) {
  const auto context =
      ask({engine.program, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"}, environment, limit);
  if (context.status == 0) return context.out.substr(0, context.out.find('\n'));
  const auto host = environment.value_or("DOCKER_HOST", "");  // docker before 19.03 has no contexts
  return host.empty() ? "unix:///var/run/docker.sock" : host;
}

void ask_docker(Engine& engine, const Environment& environment, std::chrono::milliseconds limit) {
  const auto host = docker_host(engine, environment, limit);
  if (!host.starts_with(kUnixScheme)) {
    if (!environment.value_or("DOCKER_HOST", "").empty()) refuse_remote("DOCKER_HOST is " + host, "daemon", "unset it");
    refuse_remote("docker's context is for " + host, "daemon",
                  "choose another one, as by `docker context use default`; DOCKER_CONTEXT has priority");
  }
  const auto version = ask({engine.program, "version", "--format", "{{json .}}"}, environment, limit);
  const auto info = ask({engine.program, "info", "--format", "{{json .}}"}, environment, limit);
  try {
    read_docker_facts(engine, version.out, info.out);
  } catch (const Error&) {
    refuse_engine(engine, version);
  }
  if (const auto daemon = docker_daemon(host)) engine.limits = limits_of(*daemon);
  engine.has_message_queues = std::filesystem::exists(kMessageQueues);
}

}  // namespace

CommandOutput ask(const std::vector<std::string>& argv, const Environment& environment,
                  std::chrono::milliseconds limit) {
  auto output = run_quietly(argv, environment, limit);
  if (!output.timed_out) return output;
  std::string question(base_name(argv.at(0)));
  for (size_t i = 1; i < argv.size() && (i == 1 || !argv[i].starts_with("--")); ++i) question += " " + argv[i];
  throw Error(ErrorCode::kTimeout,
              "{} has not answered `{}` for {} s, so its daemon or its storage may hang; try again when it does, or "
              "choose another engine by --engine",
              base_name(argv[0]), question, limit.count() / 1000);
}

std::optional<Engine> find_engine(EngineKind kind, const Environment& environment, std::chrono::milliseconds limit) {
  const auto program = find_tool(name(kind), environment);
  if (!program) return std::nullopt;
  Engine engine{.kind = kind, .program = *program};
  const auto answer = ask({program->native(), "--version"}, environment, limit);
  const auto version = parse_version(answer.out);
  if (answer.status != 0 || !version) refuse_engine(engine, answer);
  if (answer.out.starts_with("podman")) engine.kind = EngineKind::kPodman;  // the package podman-docker
  engine.version = *version;
  if (engine.kind == EngineKind::kPodman) ask_podman(engine, environment, limit);
  if (engine.kind == EngineKind::kDocker) ask_docker(engine, environment, limit);
  complete_facts(engine);
  if (engine.has_cdi) engine.cdi = read_cdi(cdi_folders());
  return engine;
}

Engine choose_engine(const EngineWish& wish, const Environment& environment, std::chrono::milliseconds limit) {
  auto wanted = wish.chosen ? wish.chosen : wish.site;
  if (names_file(wish.image)) {
    wanted = wish.chosen.value_or(EngineKind::kApptainer);
    image_for(*wanted, wish.image);  // before an engine is looked for
  }
  if (wanted) {
    if (auto engine = find_engine(*wanted, environment, limit)) return *engine;
    throw Error(ErrorCode::kNotFound, "{} is not installed: PATH has no such program", name(*wanted));
  }
  std::string reasons, passed_over;
  for (const auto kind : {EngineKind::kPodman, EngineKind::kDocker, EngineKind::kApptainer}) {
    try {
      if (auto engine = find_engine(kind, environment, limit)) {
        engine->passed_over = passed_over;
        return *engine;
      }
    } catch (const Error& error) {
      reasons += fmt::format("; {}", error.what());
      if (error.code() == ErrorCode::kTimeout)
        passed_over += fmt::format("{}{}", passed_over.empty() ? "" : "; ", error.what());
    }
  }
  if (!reasons.empty()) throw Error(ErrorCode::kUnavailable, "no container engine works here{}", reasons);
  throw Error(ErrorCode::kNotFound,
              "there is no container engine: PATH has neither podman nor docker nor apptainer; install one of them");
}

}  // namespace yoke::container
