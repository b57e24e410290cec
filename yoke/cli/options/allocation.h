// yoke/cli/options/allocation.h -- the option --in of commands that use a held allocation, and how they reach its
// nodes.
#pragma once

#include <string>

#include "yoke/cli/command.h"
#include "yoke/cluster/reach.h"

namespace CLI {
class Option;
}  // namespace CLI

namespace yoke::cli {

/// Adds --in JOB. `name` must outlive the parsing.
CLI::Option* add_in_option(CLI::App& command, std::string& name);

/// cluster::open_allocation(). A line on standard error says so if srun is used instead of agents.
cluster::OpenAllocation open_allocation(const std::string& name, const Context& context);

}  // namespace yoke::cli
