// yoke/base/rights.h -- the rights of a process to files, and work of root's with the rights of somebody else.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <vector>

namespace yoke {

struct Rights {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  ///< The supplementary ones.
};

/// Returns the rights of the process at the other end of a Unix socket, as they were when it connected or began to
/// listen. Returns nullopt if the kernel does not know them.
std::optional<Rights> rights_of_peer(int connection);

/// Runs `work` with these rights, as root has to when another user names the file. If they are of this process's own
/// user, it just runs `work`. All threads of the process have the rights meanwhile.
/// Errors  those of `work`; as errno says if this process may not take the rights. Ends the process if it cannot
/// return to its own.
void with_rights(const Rights& rights, const std::function<void()>& work);

}  // namespace yoke
