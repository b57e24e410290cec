// yoke/container/helper.h -- the command line of a container in which a program does some work for yoke, without
// devices and without a claim. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/container/plan.h"

namespace yoke::container {

struct HelperRequest {
  std::string image;                 ///< As the engine wants it.
  std::vector<std::string> program;  ///< The entry point and its arguments.
  std::vector<Mount> mounts = {};
  Variables variables = {};
  Variables secrets = {};                   ///< Variables whose values are not on a command line.
  std::optional<std::string> network = {};  ///< nullopt: the engine's default. Apptainer always uses the host's.
  bool only_reads = false;                  ///< The program writes nothing, and needs no capability.
  uid_t uid = 0;                            ///< Of the user, to whom the written files belong.
  gid_t gid = 0;
};

Client plan_helper(const Engine& engine, const HelperRequest& request);

}  // namespace yoke::container
