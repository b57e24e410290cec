// yoke/cluster/resident.h -- the processes that stay in a held allocation: the keeper on its first node, and a resident
// agent on each.
//
// A resident agent listens on a port of its own, and for each peer that proves the allocation's secret it starts
// `yoke agent` with the connection as standard streams. Peers without the secret are refused by the greeting of
// launch/node/handshake.h, after 5 s at the latest; at most 128 of them wait at a time, and the oldest makes room. They
// never delay the owner by more than the work of a few packets.
//
// The keeper is the job's batch script. So it outlives the terminal, the login and the login node of its user, and
// Slurm ends the allocation when the keeper ends: no process that has to survive elsewhere can leave nodes behind that
// nobody uses. It starts the resident agents as one step, and tells the user's commands by the allocation's file where
// they listen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/base/environment.h"
#include "yoke/cluster/allocation.h"

namespace yoke::cluster {

/// What is the same in the greetings of both sides, besides the secret.
std::string handshake_id(const std::string& job);

/// The line by which a resident agent tells the keeper where it listens: "yoke-resident NODE PORT GPUS CPUS".
std::string announce(const AllocationNode& node);
/// Parses such a line; nullopt for any other text. The address is not in it.
std::optional<AllocationNode> parse_announcement(std::string_view line);

/// The number of GPUs that Slurm gave the step on this node.
int64_t gpus_by_slurm(const Environment& environment);

/// Serves until a signal ends this process. `yoke` is the program to start. Prints the announcement on standard output.
/// Errors  kFailedPrecondition: the variables of a step or the secret are missing; kUnavailable: no port can be taken.
int serve_resident(const Environment& environment, const std::string& yoke);

/// Holds the allocation until a signal or the third early end of its step. Returns the exit status.
/// REQUIRES: one thread. Errors  kFailedPrecondition: this is no batch job of `yoke alloc`.
int keep_allocation(const Environment& environment, const std::string& yoke);

}  // namespace yoke::cluster
