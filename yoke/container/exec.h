// yoke/container/exec.h -- the command line that runs a program in a container that runs already. Pure.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/container/plan.h"

namespace yoke::container {

struct ExecRequest {
  std::string name;            ///< Of the container.
  pid_t pid = 0;               ///< Of its first program, for Apptainer, which has no names.
  bool has_own_users = false;  ///< The container has a user namespace of its own. For Apptainer.
  std::vector<std::string> program;
  Foreground foreground = Foreground::kNoInput;
  std::optional<std::string> working_folder = {};  ///< In the container; nullopt: that of its first program.
  Variables variables = {};                        ///< Added to the variables of the container's first program.
};

/// container-init starts the program, with the variables of the program that runs there already.
/// Apptainer has no command for a container without a name, so nsenter of util-linux enters its namespaces.
/// `tool` is the path of podman, docker or nsenter.
Client plan_exec(EngineKind engine, const std::filesystem::path& tool, const ExecRequest& request);

}  // namespace yoke::container
