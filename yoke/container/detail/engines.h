// yoke/container/detail/engines.h -- the command lines of each engine, and questions to its program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/command_output.h"
#include "yoke/container/plan.h"

namespace yoke::container {

using Words = std::vector<std::string>;

/// Asks the program of an engine. Errors  kTimeout: it has not ended within `limit`; it was killed.
CommandOutput ask(const std::vector<std::string>& argv, const Environment& environment,
                  std::chrono::milliseconds limit);

Client plan_apptainer(const Engine& engine, const Request& request, const DeviceGrant& grant);

/// All mounts, with those of yoke itself.
std::vector<Mount> mounts_of(const Request& request);
/// Variables that yoke sets unless the user does, except those for devices.
Variables own_variables(const Engine& engine, const Request& request);
/// The variables of the user, each once.
Variables users_variables(const Request& request);

/// The option that mounts a file or folder.
void add_mount(Words& words, const Engine& engine, const Mount& mount);
/// The value of --mount, which engines read as a line of CSV, so that a path may have any characters. `more`: options.
std::string mount_value(const std::string& source, const std::string& target, std::string_view more = "");
/// --memory and --cpus, which all engines know.
void add_group_limits(Words& words, const Request& request);

void add(Words& words, std::initializer_list<std::string> more);
/// Names all limits of processes. Otherwise an engine sets its own defaults, and fails if one exceeds a hard limit.
void add_limits(Words& words, const Engine& engine);
/// The image is there already. An engine that does not know the option would look for it in registries if it were gone.
void add_pull(Words& words, const Engine& engine);
/// The streams of podman and docker.
void add_streams(Words& words, Foreground foreground);

}  // namespace yoke::container
