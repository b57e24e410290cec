// yoke/slurm/check/rules_step_size.h -- what a step asks for and its job does not have. Pure.
#pragma once

#include <string>
#include <vector>

#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {

/// Finds GPUs and CPUs that the job does not have. `whole`: the layout of the job.
void find_missing_resources(const Subject& subject, const Step& step, const Layout& whole, Finder& finder);

/// Finds --exclude and --relative that leave too few nodes. `hosts`: all hosts of the job, or empty if they are not
/// known.
void find_missing_nodes(const Subject& subject, const Step& step, const std::vector<std::string>& hosts,
                        Finder& finder);

/// Finds components of a heterogeneous job that do not exist.
void find_missing_components(const Subject& subject, Finder& finder);

}  // namespace yoke::slurm::check
