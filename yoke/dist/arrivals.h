// yoke/dist/arrivals.h -- which rank has come to which collective: what a timeout needs to name the missing ones.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace c10d {
class Store;
}

namespace yoke::dist {

/// Keeps this rank's sequence number (collectives entered so far) in the store.
///
/// A thread of its own publishes the number when it has changed, at most every `interval`: the collectives themselves
/// pay nothing, and a rank that hangs in its own code still has its last number there for the others to read.
class Arrivals {
 public:
  /// `store` is cloned: a client that waits for a key blocks every other user of the same connection.
  /// `sequence` is called from the thread.
  Arrivals(c10d::Store& store, int64_t rank, int64_t size, std::chrono::milliseconds interval,
           std::function<uint64_t()> sequence);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// One sentence on who is missing at this rank's current collective, from the other ranks' numbers; then the failure
  /// that another rank has reported.
  std::string describe() const;
  /// Whether another rank's report is known here.
  bool has_heard() const;

  /// One sentence on the ranks that have not come to a meeting outside the collectives, as the end of the job is.
  std::string describe_absent(const std::vector<int64_t>& absent) const;

  /// At the end of the job: a sentence on a rank that has entered more collectives than this one, and so waits in them
  /// for ever. Errors: as the store's.
  std::optional<std::string> describe_ahead() const;

  /// Leaves `text` for the other ranks' describe(); of several reports the first counts. Waits for at most three
  /// intervals until the ranks that are waiting have read it: the store may end with this rank.
  void report(const std::string& text);

 private:
  void publish_until_stopped();
  /// With store_mutex_ held: reads the report once there is one. True when there is.
  bool listen() const;
  std::vector<std::optional<uint64_t>> numbers() const;  ///< With store_mutex_ held.

  c10::intrusive_ptr<c10d::Store> store_;
  const int64_t rank_;
  const int64_t size_;
  const std::chrono::milliseconds interval_;
  const std::function<uint64_t()> sequence_;
  mutable std::mutex store_mutex_;
  mutable std::string heard_;  ///< The report; guarded by store_mutex_.
  std::mutex stop_mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread thread_;
};

/// Pure: `own` is this rank's number, `others[r]` rank r's, nullopt where it has published none.
std::string describe_arrivals(uint64_t own, int64_t rank, const std::vector<std::optional<uint64_t>>& others);

/// Pure: `absent` are not there; it may be this rank that came too early, having entered fewer collectives than they.
std::string describe_absent_ranks(uint64_t own, const std::vector<int64_t>& absent,
                                  const std::vector<std::optional<uint64_t>>& others);

/// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2, 3 and 60 more".
std::string list_ranks(const std::vector<int64_t>& ranks);

}  // namespace yoke::dist
