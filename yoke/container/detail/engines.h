// yoke/container/detail/engines.h -- the command lines of each engine, and questions to its program.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/command_output.h"
#include "yoke/container/plan.h"

namespace yoke::container {

using Words = std::vector<std::string>;

/// Asks the program of an engine. Errors  kTimeout: it has not ended within `limit`; it was killed.
CommandOutput ask(const std::vector<std::string>& argv, const Environment& environment,
                  std::chrono::milliseconds limit);

/// The option that mounts a file or folder.
void add_mount(Words& words, const Engine& engine, const Mount& mount);
void add(Words& words, std::initializer_list<std::string> more);
/// Names all limits of processes. Otherwise an engine sets its own defaults, and fails if one exceeds a hard limit.
void add_limits(Words& words, const Engine& engine);
/// The image is there already. An engine that does not know the option would look for it in registries if it were gone.
void add_pull(Words& words, const Engine& engine);
/// The streams of podman and docker.
void add_streams(Words& words, Foreground foreground);

}  // namespace yoke::container
