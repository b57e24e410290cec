// yoke/launch/process/preload.h -- the guardian's side of `--preload`: the user's program, stopped before its main with
// libtorch loaded, from which ranks are forked in milliseconds, at the start and after every failure. docs/preload.md.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/launch/process/rank_process.h"

namespace yoke::launch {

/// Owned by whoever guards the job, for the whole of it: ranks become children of that process, which must be a child
/// subreaper. If it dies, so does the program.
///
/// Threads  one, and the same one: the death signal of a process is bound to the thread that started it.
class Preload {
 public:
  /// Why ranks of this program must be started by exec, as a clause; nullopt: it may be preloaded. A program is looked
  /// for as exec looks for it, and read, never run: one that knows nothing of this would run its main.
  static std::optional<std::string> why_not(const std::vector<std::string>& argv, const Environment& environment);

  /// Starts the program, which then loads; poll fd(). REQUIRES: why_not said nothing.
  /// `ranks`: of the first attempt; the program is loaded with what their environments have in common.
  /// Errors  kUnavailable: no socket or no process.
  explicit Preload(const std::vector<RankPlan>& ranks);
  /// Ends it. Its ranks stay.
  ~Preload();
  Preload(const Preload&) = delete;
  Preload& operator=(const Preload&) = delete;

  pid_t pid() const { return pid_; }
  int fd() const { return socket_.value(); }  ///< Readable when there is news; -1 when it has failed.

  /// Waits until it is known whether ranks can be forked, `interrupt` (-1: nothing) is readable, or the limit is over.
  void wait(int interrupt, std::chrono::milliseconds limit);
  bool is_loading() const { return socket_ && !is_ready_; }
  bool is_ready() const { return socket_ && is_ready_; }
  /// Why it is neither, as a clause: "it has 4 threads before its main".
  const std::string& reason() const { return reason_; }

  /// Forks the rank. Its pid, a child of the caller; -1 with errno as from fork; nullopt: it is not ready, or has
  /// failed just now, or was not made for this plan: start_rank() of rank_process.h is there for it.
  std::optional<pid_t> start_rank(const RankPlan& plan, const StartOptions& options);

 private:
  void read_hello();
  void fail(std::string reason);

  const std::vector<std::string> argv_;
  pid_t pid_ = -1;
  UniqueFd process_;  ///< A pidfd: whoever reaps children may have reaped this one.
  UniqueFd socket_;
  bool is_ready_ = false;
  std::string reason_;
};

/// Pure: the variables that are the same in all.
std::vector<std::string> common_environment(const std::vector<RankPlan>& ranks);

}  // namespace yoke::launch
