// yoke/launch/process/session_starter.h -- starts ranks in the launcher's session, which the guardian has left.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/launch/process/rank_process.h"

namespace yoke::launch {

/// A child of the guardian that stays in the launcher's session when the guardian leaves it. It starts the rank that
/// shares the launcher's process group (RankPlan::process_group); this rank becomes a child of the guardian.
///
/// The guardian itself must not be in that session. For the kernel, a parent in the session but outside of its child's
/// process group is the shell of the job. Without a real shell (`ssh -t host yoke run`), Ctrl-Z would then stop a job
/// that nothing can continue.
///
/// Threads  the guardian has one thread, because a death signal is tied to the thread that forked the starter.
class SessionStarter {
 public:
  /// `inherited_fds`: descriptors that ranks may inherit besides those passed to start_rank().
  /// REQUIRES: the caller is in the launcher's session, and blocks all signals.
  /// Errors  kUnavailable: no socket or no process.
  SessionStarter(const rlimit& file_limit, const std::vector<int>& inherited_fds);
  SessionStarter(const SessionStarter&) = delete;
  SessionStarter& operator=(const SessionStarter&) = delete;

  pid_t pid() const { return pid_; }

  /// Like start_rank() of rank_process.h, with the constructor's file limit. Returns nullopt if the starter was killed.
  /// REQUIRES: the three streams of `options` are open.
  std::optional<pid_t> start_rank(const RankPlan& plan, const StartOptions& options);

 private:
  pid_t pid_ = -1;
  UniqueFd socket_;  ///< Closing the socket ends the starter.
};

}  // namespace yoke::launch
