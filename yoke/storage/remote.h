// yoke/storage/remote.h -- remote folders that are mounted here by sshfs: finds, checks, makes and ends them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/storage/in_children.h"
#include "yoke/storage/mount_table.h"
#include "yoke/storage/sshfs.h"

namespace yoke::storage {

/// The sshfs process that serves a mount. The kernel says so: it has the connection of the mount open.
struct SshfsProcess {
  int64_t pid = 0;
  int64_t start_ticks = 0;
  std::optional<std::chrono::system_clock::time_point> since;
};

struct RemoteMount {
  Mount mount;
  RemoteFolder remote;
  int64_t uid = -1;                     ///< Who mounted it.
  std::optional<SshfsProcess> process;  ///< nullopt: it has ended, or belongs to another user.
};

/// The sshfs mounts of a user, or of all users. Does not look at their files, so it does not block.
std::vector<RemoteMount> find_remote_mounts(const std::optional<int64_t>& uid);

enum class MountState {
  kAlive,    ///< The server has answered.
  kStalled,  ///< No answer came in time. It may come later.
  kDead,     ///< Every access fails: sshfs has ended, or cannot reach the server now.
};
std::string_view name(MountState state);  ///< "alive", "stalled", "dead"

struct Condition {
  MountState state = MountState::kStalled;
  std::string reason;              ///< Why it is not alive.
  std::optional<Seconds> latency;  ///< From the question to the answer, if it is alive.
};

/// Asks all servers at the same time, about a name that no cache can know. `on_wait`: as of in_children().
std::vector<Condition> check(const std::vector<RemoteMount>& mounts, const Deadline& deadline,
                             const std::function<void()>& on_wait = {});

struct MountRequest {
  RemoteFolder remote;
  std::optional<std::string> point;  ///< nullopt: ~/mnt/NAME.
  std::vector<std::string> options = {};
  std::optional<std::string> config = {};
};

struct MountResult {
  RemoteMount mount;
  Condition condition;
  bool is_new = true;  ///< False: it was mounted there already.
};

/// Mounts a remote folder, and waits for its first answer. The folder is made if it is missing. After an error nothing
/// is left of it, nor after SIGINT, SIGTERM, SIGHUP or SIGQUIT, which act only then.
/// Errors  kFailedPrecondition: something is missing on this machine, the folder is not empty, is in use, or is mounted
///         in another way; kUnavailable: the server refuses, with what ssh says; kTimeout.
MountResult mount_remote(const MountRequest& request, const Environment& environment, const Deadline& deadline);

struct UnmountResult {
  MountState state = MountState::kAlive;  ///< Before the end.
  bool is_detached = false;               ///< Processes still use it, and it ends with the last of them.
};

/// Ends a mount. One whose server does not answer is ended together with its sshfs, so that nobody waits for it any
/// longer. `force`: also if processes use it.
/// Errors  kFailedPrecondition: processes use it (names them); kTimeout.
UnmountResult unmount_remote(const RemoteMount& mount, bool force, const Deadline& deadline);

/// The mount on a folder, as the user names it; nullopt: there is none. Errors  kTimeout: a folder above does not
/// answer.
std::optional<RemoteMount> find_by_point(const std::vector<RemoteMount>& mounts, const std::string& word,
                                         const Deadline& deadline);

}  // namespace yoke::storage
