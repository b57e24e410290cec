// yoke/launch/job/group.h -- what the launcher does about what happens to its ranks. Pure: it decides, supervisor does.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "yoke/launch/process/order.h"

namespace yoke::launch {

struct GroupOptions {
  std::string name = "yoke run";  ///< Begins each message.
  int64_t num_ranks = 1;          ///< Until begin() says otherwise.
  std::chrono::milliseconds grace{10'000};
  int64_t max_restarts = 0;
  std::vector<int> stop_signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};  ///< To the launcher; others are passed on.
};

enum class StopHow { kWithGrace, kNow };

/// A rank that failed.
struct Failure {
  int64_t rank = 0;
  int pid = 0;
  int wait_status = 0;
};

/// The ranks, on however many nodes, live and end together: the first failure, or a signal to the launcher, stops all
/// of them, with a grace between the polite signal and SIGKILL. After a failure they may begin again, all of them.
class Group {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// What to do now.
  struct Decision {
    Order order = Order::kNone;
    int signal = 0;      ///< To the process group of every rank; after kSignal the group is to end.
    std::string notice;  ///< A line for the user's standard error; empty: none.
  };

  explicit Group(GroupOptions options) : options_(std::move(options)) {}

  /// What the ranks of the next start are: `hosts` by rank, for messages; empty: all on one that need not be named.
  void begin(int64_t num_ranks, std::vector<std::string> hosts);

  /// `source`: the launcher that was told; a scheduler tells those of all nodes, and that is one wish. SIGINT while the
  /// ranks are already stopping kills at once. The exit status is the signal's, unless the job had already failed for
  /// good: a failure that another start would have followed does not count.
  Decision on_signal(int signal, Time now, int source = 0);
  /// Whether Ctrl-C is left to a rank that is alone with the terminal, which sent it the SIGINT too: it may be a
  /// debugger, or a shell. While the rank is being stopped, or where there is none yet, it is as any other signal.
  bool leaves_interrupt_to_rank() const {
    return attempt_.state == State::kRunning && options_.num_ranks == 1 && num_alive() == 1;
  }
  /// Such a Ctrl-C: no restart follows if the rank fails after it. Who presses it again and again is told how to end
  /// the job. REQUIRES: leaves_interrupt_to_rank().
  Decision on_interrupt_of_rank(Time now);
  /// `yoke stop`: as SIGTERM, or a second Ctrl-C, whatever signals end the job.
  Decision on_stop(StopHow how, Time now);
  Decision on_started(int64_t rank);
  Decision on_exited(int64_t rank, int pid, int wait_status, Time now);
  Decision on_cannot_run(int64_t rank, const std::string& program, int error_number,
                         Time now);                                    ///< exec of `program` failed.
  Decision on_cannot_start(int64_t rank, int error_number, Time now);  ///< fork failed.
  Decision on_left_behind(int pid, const std::string& where =
                                       "");  ///< A process of the job that survives SIGKILL (it waits in the kernel).
  Decision on_guardian_lost(int pid, const std::string& where = "");  ///< `where`: " on b", or nothing.
  /// Of the program that serves the ranks' store.
  Decision on_store_ended(int pid, const std::string& where, int wait_status, Time now);
  /// A node, with these ranks. `why`: "lost host b: ...". `is_planned`: the others may go on without it, and that is no
  /// failure.
  Decision on_node_lost(const std::string& why, const std::set<int64_t>& ranks, bool is_planned, Time now);
  /// A node asks to go, and the ranks are stopped for a start without it.
  Decision on_node_leaving(const std::string& why, int signal, Time now);
  Decision on_refused(int exit_code, const std::string& why, Time now);  ///< A node could not prepare or start.
  Decision on_time(Time now);                                            ///< REQUIRES: now >= *next_time().
  std::optional<Time> next_time() const;                                 ///< When on_time has something to do.

  // Once all ranks are gone:

  /// Whether to start all ranks again, since one failed and restarts are left, or since the nodes are others now; then
  /// the group is as new, and the notice says why.
  std::optional<std::string> begin_again();

  int exit_code() const { return attempt_.exit_code; }
  std::string reason() const;  ///< One line; empty after success.
  int64_t num_ranks() const { return options_.num_ranks; }
  int64_t num_alive() const { return static_cast<int64_t>(attempt_.alive.size()); }
  int64_t num_restarts() const { return num_restarts_; }  ///< After failures.
  int64_t num_starts() const { return num_starts_; }      ///< So far, for whatever reason, beyond the first.
  bool is_ending() const { return is_told_to_end_; }      ///< A signal ends the job.
  const std::optional<Failure>& failure() const { return attempt_.failure; }  ///< The first of this attempt.

 private:
  enum class State { kRunning, kStopping, kKilled };
  Decision fail(int exit_code, std::string cause, Time now);
  Decision stop(int signal, Time now);
  Decision end(int signal, std::string cause, StopHow how, Time now);
  bool ends_job(int signal) const;
  bool will_begin_again() const;  ///< Once all ranks are gone, as far as is known now.
  std::string describe(int64_t rank, int pid) const;
  std::string on_host(int64_t rank) const;  ///< " on b", or nothing.

  /// From one start of all ranks to their end.
  struct Attempt {
    State state = State::kRunning;
    std::set<int64_t> alive;
    int exit_code = 0;
    std::string cause;  ///< Why it ended; empty while nothing is wrong.
    std::optional<Failure> failure;
    enum class Again { kNo, kCounted, kFree } again = Again::kNo;  ///< Whether this end may be followed by a start.
    int64_t num_stopped = 0;  ///< Ranks that were alive when the group was stopped.
    int64_t num_killed = 0;   ///< Of these, the ones that did not go by themselves.
    bool counts_stopped = true;
    bool grace_is_over = false;
    bool noticed = false;
    Time stopped_at;
  };

  GroupOptions options_;
  Attempt attempt_;
  std::vector<std::string> hosts_;
  int64_t num_restarts_ = 0;
  int64_t num_starts_ = 0;
  std::vector<Time> interrupts_;  ///< The last ones that were left to the rank; empty again when the user was told.
  bool was_interrupted_ = false;
  std::set<int> told_;           ///< Launchers that have been told to end.
  bool is_told_to_end_ = false;  ///< By a signal to the launcher, whatever else happened.
  bool by_signal_ = false;       ///< And that was the first thing.
  std::string left_behind_;
};

}  // namespace yoke::launch
