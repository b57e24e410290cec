// yoke/launch/process/preload.h -- the guardian's side of `--preload`. The user's program loads libtorch and waits
// before its main. Ranks are forked from it in milliseconds, at the start and after every failure. docs/preload.md has
// the details.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/launch/plan/spec.h"
#include "yoke/launch/process/rank_process.h"

namespace yoke::launch {

/// The waiting program. Its owner is the guardian, which must be a child subreaper: ranks become children of the owner.
/// If the owner dies, the program dies too.
///
/// Threads  the owner has one thread, because a death signal is tied to the thread that started the process.
class Preload {
 public:
  /// Returns nullopt if the program can be preloaded, otherwise a clause with the reason why its ranks must be started
  /// by exec. Finds the program as exec does. Reads only the program's file: a program without libyoke_dist would run
  /// its main if it were started. Of a Python program, yoke_preload.py finds out whether it can be preloaded.
  static std::optional<std::string> why_not(const std::vector<std::string>& argv, const Environment& environment);

  /// Starts the program and returns while it loads. `ranks` are those of the first attempt; the program gets
  /// the variables that they have in common.
  /// REQUIRES: why_not() returned nullopt.
  /// Errors  kUnavailable: no socket or no process.
  Preload(const std::vector<RankPlan>& ranks, const PythonLoading& python);
  /// Ends the program, but not its ranks.
  ~Preload();
  Preload(const Preload&) = delete;
  Preload& operator=(const Preload&) = delete;

  pid_t pid() const { return pid_; }

  /// Waits until it is known whether ranks can be forked, `interrupt` is readable (-1: none), or `limit` has passed.
  void wait(int interrupt, std::chrono::milliseconds limit);
  bool is_loading() const { return socket_ && !is_ready_; }
  bool is_ready() const { return socket_ && is_ready_; }
  /// Why the program is neither loading nor ready, as a clause: "the program has 4 threads before its main".
  const std::string& reason() const { return reason_; }

  /// Forks the rank as a child of the caller. Returns its pid, or -1 with errno as fork does. Returns nullopt if the
  /// program is not ready, has just failed, or is not the plan's program; then start_rank() of rank_process.h must
  /// start the rank.
  std::optional<pid_t> start_rank(const RankPlan& plan, const StartOptions& options);

 private:
  void read_hello();
  void fail(std::string reason);

  const std::vector<std::string> argv_;
  pid_t pid_ = -1;
  UniqueFd process_;  ///< A pidfd instead of a pid, because the owner may have reaped the program already.
  UniqueFd socket_;
  bool is_ready_ = false;
  std::string reason_;
};

/// Returns the environment variables that are the same in all ranks. Pure.
std::vector<std::string> common_environment(const std::vector<RankPlan>& ranks);

}  // namespace yoke::launch
