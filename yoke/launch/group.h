// yoke/launch/group.h -- what the launcher does about what happens to its ranks. Pure: it decides, supervisor does.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace yoke::launch {

struct GroupOptions {
  std::string name = "yoke run";  ///< Begins each message.
  std::string program;            ///< argv[0], for messages.
  int64_t num_ranks = 1;
  std::chrono::milliseconds grace{10'000};
};

/// The ranks live and end together: the first failure, or a signal to the launcher, stops all of them, with a grace
/// between the polite signal and SIGKILL.
class Group {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// What to do now.
  struct Decision {
    enum class Order { kNone, kForward, kSignal, kKill };
    Order order = Order::kNone;
    int signal = 0;      ///< To the process group of every rank; after kSignal the group is to end.
    std::string notice;  ///< A line for the user's standard error; empty: none.
  };

  explicit Group(GroupOptions options) : options_(std::move(options)) {}

  Decision on_signal(int signal, Time now);
  Decision on_started(int64_t rank);
  Decision on_exited(int64_t rank, int pid, int wait_status, Time now);
  Decision on_cannot_run(int64_t rank, int error_number, Time now);    ///< exec failed.
  Decision on_cannot_start(int64_t rank, int error_number, Time now);  ///< fork failed.
  Decision on_left_behind(int pid);  ///< A process of the job that survives SIGKILL (it waits in the kernel).
  Decision on_guardian_lost(int pid);
  Decision on_time(Time now);             ///< REQUIRES: now >= *next_time().
  std::optional<Time> next_time() const;  ///< When on_time has something to do.

  /// Once all ranks are gone.
  int exit_code() const { return exit_code_; }
  std::string reason() const;  ///< One line; empty after success.

 private:
  enum class State { kRunning, kStopping, kKilled };
  Decision fail(int exit_code, std::string cause, Time now);
  Decision stop(int signal, Time now);

  GroupOptions options_;
  State state_ = State::kRunning;
  std::set<int64_t> alive_;
  int exit_code_ = 0;
  std::string cause_;        ///< Why the group ended; empty while nothing is wrong.
  int64_t num_stopped_ = 0;  ///< Ranks that were alive when the group was stopped.
  int64_t num_killed_ = 0;   ///< Of these, the ones that did not go by themselves.
  bool counts_stopped_ = true;
  bool by_signal_ = false;  ///< Stopped by a signal to the launcher.
  bool grace_is_over_ = false;
  bool noticed_ = false;
  Time stopped_at_;
  std::string left_behind_;
};

/// "SIGTERM", or "signal 64".
std::string signal_name(int signal);

}  // namespace yoke::launch
