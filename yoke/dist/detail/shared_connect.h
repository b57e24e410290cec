// yoke/dist/detail/shared_connect.h -- gives the ranks of a group the memory that those of each host share, and
// connects the hosts.
//
// Keys in the group's store, within a host or if all ranks are on one:
//   door             how to get the memory of the group's first rank (shared/rendezvous.h); empty: there is none
//   absent           the number of ranks that did not get it because they are elsewhere
// If the group may be on several hosts, those of one host have a prefix for these, and there are
//   host/RANK        the rank's host, where it takes connections of other hosts (shared/links.h), and the hosts with
//                    which it has found that its own has no connection
//   linked/RANK      "1" if the rank has the memory and all its connections; otherwise "0", and why, if this rank has
//                    found it out, after the host that has given no answer
//   unlinked         set if one has not
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "yoke/dist/detail/shared_memory.h"
#include "yoke/dist/shared/engine.h"

namespace yoke::dist {

struct SharedConnection {
  std::shared_ptr<shared::Engine> engine;
  std::shared_ptr<shared::Arena> arena;  ///< Null if tensors cannot lie in the memory, as with several hosts.
};

/// Collective. Returns nullopt on all ranks if one of them cannot have the memory, or cannot be connected to.
std::optional<SharedConnection> connect_shared(c10d::Store& store, const SharedMemoryOptions& options);

/// Returns the host name and the boot id. The name alone may not identify a machine: two machines may both be called
/// "localhost". Two containers on one machine count as two hosts if their names differ.
std::string name_of_host();

}  // namespace yoke::dist
