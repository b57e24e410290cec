// yoke/launch/process/process_states.h -- watches processes that do not run: stopped ones, and those that wait in the
// kernel where no signal reaches them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace yoke::launch {

/// The state of the main thread of `pid`, as in ps(1): 'R', 'S', 'D' (waits in the kernel), 'T' (stopped), 't' (stopped
/// by a debugger); 0 if the process has ended.
char state_of_process(pid_t pid);

/// Whether a process in this state goes on only after SIGCONT, or if a debugger lets it.
constexpr bool is_stopped(char state) { return state == 'T' || state == 't'; }
constexpr bool is_in_kernel(char state) { return state == 'D'; }

/// Threads  one.
class ProcessStates {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Change {
    pid_t pid = 0;
    char state = 0;
    bool operator==(const Change&) const = default;
  };

  /// `interval`: the time between two looks. A look costs about ten microseconds for each process.
  explicit ProcessStates(std::chrono::milliseconds interval, std::function<char(pid_t)> read = state_of_process)
      : interval_(interval), read_(std::move(read)) {}

  void add(pid_t pid) { states_[pid] = 'R'; }
  void remove(pid_t pid) { states_.erase(pid); }
  /// When look() is to be called; nullopt if nothing is watched.
  std::optional<Time> next_time() const;
  /// Looks at every process, if it is time for that. Returns those that have been stopped or have begun to wait in the
  /// kernel since the last look, and those that have gone on.
  std::vector<Change> look(Time now);
  /// Looks at once, and returns all.
  std::vector<Change> look_at_all();

 private:
  std::chrono::milliseconds interval_;
  std::function<char(pid_t)> read_;
  std::map<pid_t, char> states_;  ///< As of the last look.
  Time next_ = Time::min();
};

}  // namespace yoke::launch
