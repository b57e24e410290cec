// yoke/launch/job/rank_policy.h -- decides what the launcher does after an event of its ranks. Pure: the executor
// (supervisor.cpp) carries the decisions out.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "yoke/launch/job/replace_rule.h"
#include "yoke/launch/job/restart_rule.h"
#include "yoke/launch/output/culprit.h"
#include "yoke/launch/process/order.h"

namespace yoke::launch {

struct RankPolicyOptions {
  std::string name = "yoke run";  ///< The beginning of each message.
  int64_t num_ranks = 1;          ///< The number of ranks until begin() sets it.
  std::chrono::milliseconds grace{10'000};
  std::chrono::milliseconds kernel_sleep_limit{0};  ///< LaunchSpec::kernel_sleep_limit
  RestartLimit restarts;
  int64_t replacements = 0;  ///< How many ranks may be started again alone, in all.
  std::vector<int> stop_signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};  ///< End the job; other signals are passed on.
};

enum class StopHow { kWithGrace, kNow };

/// A rank that failed.
struct Failure {
  int64_t rank = 0;
  int pid = 0;
  int wait_status = 0;
};

/// A rank that has ended.
struct RankEnd {
  int64_t rank = 0;
  int pid = 0;
  int wait_status = 0;
  std::string more = {};  ///< What follows the description of the status.
  std::chrono::system_clock::time_point seen_at = {};
  std::optional<int64_t> kept_step = {};  ///< Of the newest state that a process in its place could go on from.
};

/// What a rank that has ended leaves.
struct RankReport {
  std::optional<int64_t> num_steps;  ///< The steps of the training that it had made; nullopt: not reported.
  std::optional<ErrorReport> error;
  std::string log, last_line;  ///< May be empty.
};

/// The ranks of all nodes end together: the first failure, or a signal to the launcher, stops all of them. They first
/// get a signal that they can handle and, after the grace period, SIGKILL. After a failure all ranks may start again.
class RankPolicy {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// An order for the ranks and a message for the user.
  struct Decision {
    Order order = Order::kNone;
    int signal = 0;  ///< The signal for the process group of every rank. After kSignal all ranks are expected to end.
    std::string notice;  ///< A line for the user's standard error; empty if there is none.
    struct Replacement {
      int64_t rank = 0;
      int pid = 0;         ///< Of the process that has ended.
      int64_t number = 0;  ///< From 1.
    };
    std::optional<Replacement> replacement = {};  ///< A rank that is to start again alone.
    int64_t first_replacement =
        0;  ///< Of on_host_lost(): the number of the first rank that starts again; 0: none does.
  };

  explicit RankPolicy(RankPolicyOptions options)
      : options_(std::move(options)), rule_(options_.restarts), replace_rule_(options_.replacements) {}

  /// Describes the ranks of the next start. `hosts`: the host of each rank, for messages; empty if all ranks are on one
  /// host that messages need not name.
  void begin(int64_t num_ranks, std::vector<std::string> hosts);

  /// `source`: the launcher that got the signal. A scheduler signals the launchers of all nodes; together these signals
  /// are one request. A SIGINT while the ranks are already stopping kills them at once, except within half a second of
  /// the first SIGINT: `timeout` and others signal the process and then its group, which is one request. The job's exit
  /// status becomes the signal's, unless a failure without a further restart came before.
  /// `what` is for the message, if it is not the name of the signal alone.
  Decision on_signal(int signal, Time now, int source = 0, const std::string& what = "");
  /// Whether the job's only rank handles Ctrl-C. The terminal sends SIGINT to this rank too, which may be a debugger or
  /// a shell. While the rank is being stopped, or before it has started, Ctrl-C is handled like any other signal.
  bool leaves_interrupt_to_rank() const {
    return attempt_.state == State::kRunning && options_.num_ranks == 1 && num_alive() == 1;
  }
  /// The user pressed Ctrl-C, and the rank handles it. If the rank then fails, it is not started again. If the user
  /// presses Ctrl-C several times, a message says how to end the job. REQUIRES: leaves_interrupt_to_rank().
  Decision on_interrupt_of_rank(Time now);
  /// Handles `yoke stop`: like SIGTERM or, with --now, like a second Ctrl-C, whatever --signals-to-handle says.
  Decision on_stop(StopHow how, Time now);
  Decision on_started(int64_t rank, int pid);
  Decision on_exited(const RankEnd& end, Time now);
  /// The rank's process has been stopped, waits in the kernel, or goes on. `state`: as in ps(1).
  Decision on_state(int64_t rank, char state, Time now);
  /// exec of `program` failed.
  Decision on_cannot_run(int64_t rank, const std::string& program, int error_number, Time now);
  /// fork failed.
  Decision on_cannot_start(int64_t rank, int error_number, Time now);
  /// A process of the job survives SIGKILL, because it is blocked in the kernel. `where`: " on b", or empty.
  Decision on_left_behind(int pid, const std::string& where = "");
  /// A guardian was killed, and its launcher ends these ranks. Those of other hosts are asked to end.
  Decision on_guardian_lost(int pid, const std::set<int64_t>& ranks, const std::string& where, Time now);
  /// The program that serves the ranks' TCPStore has ended before the ranks.
  Decision on_store_ended(int pid, const std::string& where, int wait_status, Time now);
  /// A node with these ranks was lost. `why`: "lost host b: ...". `is_planned`: the other nodes may continue without
  /// this node, so the loss is not a failure.
  Decision on_node_lost(const std::string& why, const std::set<int64_t>& ranks, bool is_planned, Time now);
  /// The same, if the host `spare` waits and can take that node's place: whether the ranks start again there, while the
  /// others run.
  Decision on_host_lost(const std::string& why, const std::set<int64_t>& ranks, const std::string& spare, Time now);
  /// Replaces the beginning of the cause of the end, of which more is known now.
  void replace_cause(const std::string& before, const std::string& now);
  /// The spare has started none of these ranks. Returns false if all ranks are to end.
  bool take_back_replacements(const std::set<int64_t>& ranks);
  /// A node leaves the job. The ranks are stopped, and start again on the other nodes.
  Decision on_node_leaving(const std::string& why, int signal, Time now);
  /// A node could not prepare for a start, or could not start its ranks.
  Decision on_refused(int exit_code, const std::string& why, Time now);
  Decision on_time(Time now);             ///< REQUIRES: now >= *next_time().
  std::optional<Time> next_time() const;  ///< When on_time() must be called.

  /// What a rank has left is known when all have ended. A report may come before, when a rank has just ended.
  void on_report(int64_t rank, const RankReport& report);
  void on_early_report(int64_t rank, const ErrorReport& report);
  /// Whether a rank keeps a state of its training. Only known of jobs with spares.
  void on_keeps(int64_t rank, bool keeps);

  struct Restart {
    std::string notice;             ///< The reason, for the user.
    std::chrono::seconds delay{0};  ///< How long the start waits.
  };
  /// Whether all ranks start again, because one failed and the restart rule allows it, or because the set of nodes
  /// changed. If so, resets the data of the attempt. REQUIRES: all ranks have ended, and all reports have come.
  std::optional<Restart> begin_again();

  int exit_code() const;
  /// One line; empty after success, unless a rank that ended with status 0 has reported an error.
  std::string reason() const;
  int64_t num_ranks() const { return options_.num_ranks; }
  int64_t num_alive() const { return static_cast<int64_t>(attempt_.alive.size()); }
  int64_t num_restarts() const { return rule_.num_restarts(); }  ///< The number of restarts after a failure.
  int64_t num_starts() const { return num_starts_; }  ///< The number of starts, for any reason, after the first one.
  bool is_ending() const { return is_told_to_end_; }  ///< Whether a signal ends the job.
  const std::optional<Failure>& failure() const { return attempt_.failure; }  ///< The first failure in this attempt.
  const FailureFacts& facts() const { return attempt_.facts; }                ///< What is known about it.

 private:
  enum class State { kRunning, kStopping, kKilled };
  Decision fail(int exit_code, std::string cause, Time now);
  /// The rank has waited in the kernel for the limit. The job fails without a restart, because SIGKILL may not end the
  /// process, and it may hold a device that new ranks would need.
  Decision give_up(int64_t rank, Time now);
  Decision stop(int signal, Time now);
  Decision end(int signal, std::string cause, StopHow how, Time now);
  bool ends_job(int signal) const;
  bool will_begin_again() const;  ///< Whether a restart follows when all ranks have ended, as far as is known now.
  std::string describe(int64_t rank, int pid) const;
  std::string describe(const Culprit& culprit) const;
  /// Returns "rank 3 had been stopped; then rank 0 exited with code 124", of the culprit and the cause of the end.
  std::string describe_cause(const Culprit& culprit) const;
  std::string describe_running() const;
  std::string describe_caught() const;
  struct Stay;
  bool is_told(const Stay& stay) const;
  std::string notice_of_left(Time now);
  std::string notice_of_state(int64_t rank, Time now);
  std::string on_host(int64_t rank) const;  ///< " on b", or empty.

  /// Since when a rank has been stopped, or has waited in the kernel.
  struct Stay {
    char state = 'R';
    Time since;
    bool is_said = false;
  };

  /// The time from one start of all ranks to their end.
  struct Attempt {
    State state = State::kRunning;
    std::set<int64_t> alive;
    int exit_code = 0;
    std::string cause;         ///< Why it ended; empty before the first failure or signal.
    std::string cause_before;  ///< Why the attempt before it ended; empty once a rank of this one has started.
    std::string replaced;      ///< What was lost last and was started again while others ran; empty: nothing was.
    Time replaced_at = {};
    std::optional<Failure> failure;
    FailureFacts facts;
    std::map<int64_t, int> pids;
    std::map<int64_t, Stay> stays;     ///< Of ranks that run.
    std::set<int64_t> keepers;         ///< The ranks that keep a state of their training.
    std::map<int64_t, int64_t> steps;  ///< That ranks reported.
    std::string no_restart;            ///< Why no start follows, if the restart rule says more than the limit.
    /// Whether a new start may follow. With kCounted the restart rule decides.
    enum class Again { kNo, kCounted, kFree } again = Again::kNo;
    int64_t num_stopped = 0;  ///< The ranks that were alive when all were told to stop.
    int64_t num_killed = 0;   ///< How many of num_stopped had to be killed.
    bool counts_stopped = true;
    bool grace_is_over = false;
    bool names_no_rank = false;  ///< The cause is that a process of the launcher's own has ended.
    bool noticed = false;
    Time stopped_at;
    /// The ranks that ended with status 0 while others ran, in the order of their ends, and when.
    std::vector<std::pair<int64_t, Time>> left;
    bool has_said_left = false;
  };

  RankPolicyOptions options_;
  Attempt attempt_;
  std::vector<std::string> hosts_;
  RestartRule rule_;
  ReplaceRule replace_rule_;
  int64_t num_starts_ = 0;
  /// The times of recent Ctrl-C that the rank handled. Cleared when the message is printed.
  std::vector<Time> interrupts_;
  bool was_interrupted_ = false;
  std::optional<Time> interrupted_at_;  ///< The time of the first SIGINT.
  std::set<int> told_;                  ///< The launchers that got a signal to end the job.
  bool is_told_to_end_ = false;         ///< Whether a signal or `yoke stop` asked for the end of the job.
  bool by_signal_ = false;              ///< Whether that signal came before any failure of the attempt.
  std::string left_behind_;
};

}  // namespace yoke::launch
