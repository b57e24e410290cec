// yoke/launch/process/guardian.h -- the process that starts the ranks, and ends them when the launcher has ended.
#pragma once

#include <sys/resource.h>

#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

struct GuardianOptions {
  UniqueFd control;            ///< The guardian's end of the socket pair (protocol.h).
  std::vector<int> keep_open;  ///< The launcher's other descriptors that ranks inherit.
  rlimit file_limit{};         ///< The ranks' limit. The launcher may have raised its own.
  bool has_terminal = false;   ///< Whether the launcher has a terminal; if so, a plan may name its process group.
  bool replaces = false;       ///< Whether the launcher may start a rank again that a signal has killed.
  PythonLoading python;        ///< For plans that may be preloaded.
  std::string folder;  ///< A folder to create at the start and to remove when the launcher has ended; empty: none.
};

/// Starts ranks and signals them as the launcher orders. After the last rank has ended, and when the launcher has ended
/// (the end of file of `control`), kills all processes that the ranks left: orphans, and daemons in their own sessions.
/// Lives as long as the launcher, so that at any moment a process can clean up. Has one thread and decides nothing.
/// REQUIRES: the caller is a new fork of the launcher, which has one thread. (A fork continues with the launcher's
/// code; spawn() would need a program on the disk.)
[[noreturn]] void guard(GuardianOptions options);

}  // namespace yoke::launch
