// yoke/container/engine.h -- the container engines of this machine, and the facts about one that decide its arguments.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/base/environment.h"
#include "yoke/container/cdi.h"

namespace yoke::container {

enum class EngineKind { kPodman, kDocker, kApptainer };
std::string_view name(EngineKind kind);  ///< "podman", "docker", "apptainer"
/// Returns nullopt for any other text.
std::optional<EngineKind> parse_engine_kind(std::string_view text);

struct Version {
  int64_t major = 0, minor = 0, patch = 0;

  auto operator<=>(const Version&) const = default;
  std::string text() const;
};

/// Finds the first version in a text, such as "podman version 4.3.1" or "1.4.5-2". Returns nullopt if there is none.
std::optional<Version> parse_version(std::string_view text);

/// Limits of processes that the engine can give to a container. kUnlimited: it can give any.
inline constexpr int64_t kUnlimited = -1;
struct ProcessLimits {
  int64_t num_files = kUnlimited, num_processes = kUnlimited, locked_bytes = kUnlimited, stack_bytes = kUnlimited;
  bool can_raise = true;  ///< The engine may exceed the numbers above: it has CAP_SYS_RESOURCE on the host.

  bool operator==(const ProcessLimits&) const = default;
};

/// Parses the hard limits in /proc/PID/limits, the effective capabilities in /proc/PID/status, and /proc/PID/uid_map: a
/// capability in a user namespace raises no limit. Pure.
ProcessLimits parse_process_limits(std::string_view limits, std::string_view status, std::string_view uid_map);

struct Engine {
  EngineKind kind = EngineKind::kPodman;
  std::filesystem::path program;
  bool is_installed = true;  ///< If not, this is what the engine would be (assumed_engine()).
  Version version;           ///< The version of the program that runs containers: docker's daemon, not its client.
  bool is_rootless = false;  ///< The engine runs as this user, so root in a container is this user.
  bool remaps_ids = false;   ///< docker: ids in a container are others outside, unless it uses the host's.
  bool knows_pull = true;    ///< Its program knows `run --pull=never`.
  /// Which engines choose_engine() left out because they did not answer in time; empty: none.
  std::string passed_over = {};
  ProcessLimits limits = {};
  bool has_message_queues = true;   ///< /dev/mqueue, which rootless engines need for the host's IPC.
  bool can_keep_groups = false;     ///< Rootless podman with crun.
  bool has_cdi = false;             ///< The engine resolves names such as nvidia.com/gpu=0.
  bool has_nvidia_hook = false;     ///< podman: an OCI hook of NVIDIA's is installed.
  bool has_nvidia_runtime = false;  ///< docker: a runtime with the name nvidia is configured.
  CdiRegistry cdi = {};
};

/// Where the subordinate ids of users come from, by the text of /etc/nsswitch.conf: "files" is /etc/subuid. Pure.
std::string source_of_subordinate_ids(std::string_view nsswitch);

inline constexpr const char* kMessageQueues = "/dev/mqueue";

/// How long an engine may take to answer a question. Its daemon may have stopped, or its storage may hang.
inline constexpr std::chrono::seconds kAnswerTime{10};

/// Fills in what follows from the version.
void complete_facts(Engine& engine);

/// Parses `docker version --format {{json .}}` and `docker info --format {{json .}}`. Pure.
/// Errors  kUnavailable: the texts have no server, because the daemon does not answer or may not be used.
void read_docker_facts(Engine& engine, const std::string& version_json, const std::string& info_json);

/// Looks for an engine in PATH and asks it for its facts, with `limit` for each question. The program `docker` may be
/// podman in truth.
/// Returns  nullopt if the program is not installed.
/// Errors  kUnavailable: the engine does not work; the message has what it printed. kTimeout: it did not answer.
///         kFailedPrecondition: it runs its containers on another machine.
std::optional<Engine> find_engine(EngineKind kind, const Environment& environment,
                                  std::chrono::milliseconds limit = kAnswerTime);

/// A typical installation of an engine, for command lines that are printed on a machine without it.
Engine assumed_engine(EngineKind kind);

struct EngineWish {
  std::optional<EngineKind> chosen = {};  ///< By the user for this call.
  std::optional<EngineKind> site = {};    ///< The site's default.
  std::string image = {};                 ///< A file or folder needs Apptainer.
};

/// The engine that the user named, or else Apptainer for a file, or else the site's default, or else the first that
/// works of podman, docker and apptainer. Errors  kNotFound: it is not installed, or there is no such file; those of
/// find_engine().
Engine choose_engine(const EngineWish& wish, const Environment& environment,
                     std::chrono::milliseconds limit = kAnswerTime);

}  // namespace yoke::container
