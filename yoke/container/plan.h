// yoke/container/plan.h -- the command line by which an engine starts a container. Pure.
//
// The first program in each container is container-init, a static program that is mounted into it. It reports what it
// sees to the process that holds the claim, waits for its consent, and then starts the user's program.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/cgroup_limits.h"
#include "yoke/base/environment.h"
#include "yoke/container/client.h"
#include "yoke/container/devices.h"
#include "yoke/container/engine.h"

namespace yoke::container {

inline constexpr const char* kInitInside = "/opt/yoke/init";
inline constexpr const char* kCommandInside = "/opt/yoke/bin/yoke";
inline constexpr const char* kMeetingInside = "/opt/yoke/run";  ///< The folder of the socket.
inline constexpr const char* kSocketName = "keeper.sock";
inline constexpr const char* kWorkspace = "/workspace";
/// Of all containers that yoke starts: the user's number, and the folder Request::meeting.
inline constexpr const char *kLabel = "org.yoke.uid", *kMeetingLabel = "org.yoke.keeper";

struct Mount {
  std::string source, target;
  bool is_read_only = false;

  bool operator==(const Mount&) const = default;
};

/// Parses "A:B" or "A:B:ro" of -v; a relative A is below `folder`. A name without a slash is a volume of the engine.
/// Errors  kInvalidArgument: it has another form.
Mount parse_mount(const std::string& text, const std::filesystem::path& folder);

/// The value of an engine's --publish for that of -p: without an address, of this machine's loopback alone.
std::string published_port(const std::string& text);
/// A sentence for the user about a port of -p without an address; empty if it has one.
std::string note_on_port(const std::string& text);

/// Parses the lines of a file of variables (--env-file) as docker does: NAME=VALUE, where the value is the rest of the
/// line as it is, or NAME, which is passed on from `environment`. Empty lines and those that begin with # mean nothing.
/// Errors  kInvalidArgument, with the file and the line.
Variables parse_variable_file(const std::string& text, const std::string& file, const Environment& environment);

/// Who starts the container.
struct User {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  ///< Supplementary.
  std::string name;           ///< The name of the kernel's uid; $USER may differ.
};

enum class Foreground { kDetached, kPipes, kNoInput, kTerminal };

struct Request {
  std::string image;                 ///< As the engine wants it.
  std::vector<std::string> program;  ///< The image's entry point and the command.
  std::string name;
  User user;
  Foreground foreground = Foreground::kNoInput;
  std::vector<Mount> mounts;                 ///< The user's.
  std::filesystem::path folder;              ///< Mounted at /workspace.
  std::string working_folder = kWorkspace;   ///< In the container.
  std::filesystem::path init, command;       ///< container-init and yoke of this installation.
  std::filesystem::path meeting;             ///< The folder with the socket of the keeper.
  Variables variables = {};                  ///< The user's. The last one of a name counts.
  std::optional<std::string> network = {};   ///< As the engine names it; nullopt: the engine's default.
  std::optional<int64_t> shared_bytes = {};  ///< Of a /dev/shm of its own; nullopt: the host's.
  int64_t host_memory_bytes = 0;             ///< Of this machine, or what may be used of it.
  std::optional<int64_t> memory_bytes = {};  ///< The most that the container may use; nullopt: no limit of its own.
  std::optional<double> num_cpus = {};       ///< The most processor time, in CPUs.
  std::vector<std::string> ports = {};       ///< Of -p, as the user gives them.
  std::filesystem::path extension = {};      ///< Of `yoke container extend`, for Apptainer alone; empty: none.
  int64_t log_bytes = 50 << 20;              ///< The most that the engine keeps of the output.
};

/// Errors  kInvalidArgument: the engine has nothing for a part of the request, with what to do instead.
void check_request(const Engine& engine, const Request& request);

/// Says which of the limits that were asked for the container does not have, by the control groups of its first
/// program; nullopt: it has them all. Engines ignore limits where they cannot set them, such as rootless podman with
/// version 1 of control groups.
std::optional<std::string> missed_limit(const Engine& engine, const Request& request, const CgroupLimits& limits);

/// How the engine starts the container. REQUIRES: check_request() accepts the request.
Client plan_container(const Engine& engine, const Request& request, const DeviceGrant& grant);

/// Returns argv that prints the ids of the container, in whatever state, whose keeper meets it in this folder; empty
/// for Apptainer.
std::vector<std::string> plan_listing(const Engine& engine, const std::filesystem::path& meeting);
/// Returns argv that makes the engine end and remove the container with this id; empty for Apptainer.
std::vector<std::string> plan_removal(const Engine& engine, const std::string& id);

}  // namespace yoke::container
