// yoke/storage/detail/sshfs_process.h -- finds the sshfs of a mount, its ssh, and who uses the mount, in /proc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/storage/remote.h"

namespace yoke::storage {

/// The processes of all mounts. A process counts if it is an sshfs of the user who mounted, and has the FUSE connection
/// of the mount open; kernels before 6.12 or so do not say which connection, and then its words must name the mount.
void find_processes(std::vector<RemoteMount>& mounts);

/// The command line of a process; empty if it has ended.
std::vector<std::string> argv_of(int64_t pid);

struct MountUser {
  int64_t pid = 0;
  std::string name;
};

/// The processes, as far as this user may see them, that have their working folder or a file below `point`.
std::vector<MountUser> users_of(const std::string& point);

/// Kills an sshfs and the ssh processes of its session, if these are the processes that were found.
void kill_sshfs(const SshfsProcess& process);

}  // namespace yoke::storage
