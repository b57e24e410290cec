// yoke/launch/process/guardian.h -- the process that starts the ranks, and ends them when the launcher has ended.
#pragma once

#include <sys/resource.h>

#include <string>
#include <vector>

#include "yoke/base/file.h"

namespace yoke::launch {

struct GuardianOptions {
  UniqueFd control;            ///< The guardian's end of the socket pair (protocol.h).
  std::vector<int> keep_open;  ///< Other descriptors of the launcher that ranks inherit.
  rlimit file_limit{};         ///< The limit for the ranks; the launcher may have raised its own.
  bool has_terminal = false;   ///< The launcher has a terminal, so a plan may name its process group.
  std::string folder;          ///< Created at the start, removed when the launcher has ended; empty: none.
};

/// Starts ranks and signals them as the launcher orders. After the last rank has ended, and when the launcher has ended
/// (the end of file of `control`), it ends all processes that the ranks left: orphans, and daemons in their own
/// sessions. It lives as long as the launcher, so that at each moment there is a process that cleans up. It has one
/// thread and decides nothing. REQUIRES: the caller is a fresh fork of the launcher, which has one thread. (It is a
/// fork and not a spawn(), because it continues with the launcher's code and does not need a program on the disk.)
[[noreturn]] void guard(GuardianOptions options);

}  // namespace yoke::launch
