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

  /// One sentence on who is missing at this rank's current collective, from the other ranks' numbers.
  std::string describe() const;

 private:
  void publish_until_stopped();

  c10::intrusive_ptr<c10d::Store> store_;
  const int64_t rank_;
  const int64_t size_;
  const std::chrono::milliseconds interval_;
  const std::function<uint64_t()> sequence_;
  mutable std::mutex store_mutex_;
  std::mutex stop_mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread thread_;
};

/// Pure: `own` is this rank's number, `others[r]` rank r's, nullopt where it has published none.
std::string describe_arrivals(uint64_t own, int64_t rank, const std::vector<std::optional<uint64_t>>& others);

/// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2, 3 and 60 more".
std::string list_ranks(const std::vector<int64_t>& ranks);

}  // namespace yoke::dist
