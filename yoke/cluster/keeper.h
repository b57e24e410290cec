// yoke/cluster/keeper.h -- the program of the batch job that holds an allocation.
//
// The keeper runs on the first node, as the job's batch script. So it outlives the terminal, the login and the login
// node of its user, and Slurm ends the allocation when the keeper ends: no process that has to survive elsewhere can
// leave nodes behind that nobody uses. It starts the resident agents as one step, and tells the user's commands by the
// allocation's file where they listen.
#pragma once

#include <string>

#include "yoke/base/environment.h"

namespace yoke::cluster {

/// Holds the allocation until a signal or the third early end of its step. Returns the exit status.
/// REQUIRES: one thread. Errors  kFailedPrecondition: this is no batch job of `yoke alloc`.
int keep_allocation(const Environment& environment, const std::string& yoke);

}  // namespace yoke::cluster
