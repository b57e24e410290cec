// yoke/program/program_tree.h -- ends a program with all processes that it has started, also those in the background.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "yoke/launch/process/descendants.h"

namespace yoke::program {

/// Processes, with the times at which they started (Process::start_ticks).
using ProcessTimes = std::map<pid_t, uint64_t>;

/// What a process is for the end of a program. A container's engine has processes of its own in other sessions, which
/// pass signals on and remove the container, so these are left alone while the container's keeper ends it.
enum class TreeRole {
  kOfSession,        ///< It belongs to the program's session.
  kContainerKeeper,  ///< It keeps a container that was started under the claim, and ends it.
  kOther,            ///< Another session: a daemon, or an engine's process.
};

struct TreeTime {
  std::chrono::milliseconds since_begin{0};  ///< Of the end.
  /// Since no keeper of a container lives any more; nullopt: one lives.
  std::optional<std::chrono::milliseconds> since_containers = std::chrono::milliseconds(0);
  bool had_containers = false;  ///< One has lived since the begin.
};

enum class TreeStep { kNone, kTerminate, kKill };

inline constexpr std::chrono::seconds kTreeGrace{10};  ///< Between SIGTERM and SIGKILL.

/// What a process gets now. `is_told`: it got SIGTERM, or has started since the begin. Pure.
TreeStep tree_step(TreeRole role, const TreeTime& time, bool is_told);

/// The descendants of this process, except those that were there before the program.
class ProgramTree {
 public:
  /// Makes this process the parent of orphans, so that no descendant escapes. REQUIRES: the program has not started.
  ProgramTree();

  /// Leaves out a child that does not belong to the program. Negative numbers are ignored.
  void leave_out(pid_t child);

  /// Reaps orphans that have ended, but not the program itself.
  void reap_orphans(pid_t program) const;

  /// Signals what is due now. Returns the processes that have not ended. `keepers`: those of containers that live.
  std::vector<launch::Process> end(pid_t program, const ProcessTimes& keepers);
  bool is_ending() const { return begin_.has_value(); }

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<launch::Process> running() const;
  bool is_left_out(const launch::Process& process) const;
  bool is_told(const launch::Process& process) const;

  ProcessTimes left_out_, told_;
  std::optional<Clock::time_point> begin_, containers_ended_;
  uint64_t begin_ticks_ = 0;
  bool had_containers_ = false;
};

}  // namespace yoke::program
