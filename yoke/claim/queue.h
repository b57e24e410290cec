// yoke/claim/queue.h -- whose turn it is, and how those who wait learn that something was given back.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/claim/ledger.h"
#include "yoke/claim/limits.h"

namespace yoke::claim {

/// What a request is told when it asks for devices. Pure.
struct Turn {
  bool is_ours = false;
  int64_t num_ahead = 0;                              ///< Requests that come first and that no limit holds back.
  std::optional<Excess> excess;                       ///< The limit that the user would exceed.
  int64_t position = 0;                               ///< In the queue, counted from 1; 0: it does not wait.
  std::optional<std::chrono::seconds> expected_wait;  ///< See expected_waits().
  std::vector<std::string> avoid = {};                ///< Keys of devices that somebody else waits for by name.
};

struct Asker {
  int64_t uid = 0;
  int64_t num_devices = 1;
  std::optional<std::string> ticket = {};  ///< The name of its place in the queue; nullopt: it does not wait.
};

/// A request that waits comes before all that are behind it in Survey::tickets, even if it needs more devices than are
/// free. Requests of users who have reached a limit do not keep others waiting. A request that does not wait comes
/// last.
/// A request for no more than its user has reserved for now waits for nobody.
Turn turn_of(const Survey& survey, const Asker& asker, const Limits& limits);

/// When each request of Survey::tickets starts, as far as the claims say when they end: counted from `now`, and nullopt
/// if a claim that it needs has no end, or if a limit holds it back. Pure.
std::vector<std::optional<std::chrono::seconds>> expected_waits(const Survey& survey, const Limits& limits,
                                                                int64_t num_free, Time now);

/// Whether a request that takes `length` may start before others without delaying the first of them. It may if it ends
/// before enough claims have ended for that one, by what they say, or if enough devices are left then. Claims without
/// an end count as if they never ended. Pure.
bool may_go_ahead(const Survey& survey, const Asker& asker, const Limits& limits, int64_t num_free,
                  std::chrono::seconds length, Time now);

/// The devices that the first request of the queue waits for by name, if a request of `num_devices` may start before it
/// because it finds enough others among `free_keys`. nullopt: it may not. Pure.
std::optional<std::vector<std::string>> keys_to_avoid(const Survey& survey, const Asker& asker, const Limits& limits,
                                                      const std::vector<std::string>& free_keys);

/// Learns of changes in the folder of locks (inotify): a claim or a place in the queue has ended.
class Wakeup {
 public:
  /// Errors  kUnavailable: the kernel has no more watches.
  explicit Wakeup(const LockFolder& folder);

  int fd() const { return fd_.value(); }
  /// Forgets what has been reported so far. Returns whether there was anything.
  bool drain();

 private:
  UniqueFd fd_;
};

/// How long to wait before the n-th look since the last wakeup, counted from 0. The kernel reports that a file was
/// closed a moment before it drops the lock, and a driver shows a process for some time after its end; so the first
/// looks follow each other quickly. The last ones notice what is not reported.
std::chrono::milliseconds pause_before(int64_t look);

}  // namespace yoke::claim
