// yoke/dist/arrivals.h -- which rank has come to which collective: what a timeout needs to name the missing ones.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace c10d {
class Store;
}

namespace yoke::dist {

/// What the members of a group have published, by their rank in the World; nullopt: nothing yet.
using Numbers = std::map<int64_t, std::optional<uint64_t>>;

/// A group whose collectives are counted.
struct CountedGroup {
  std::string key;             ///< In the store; the same on all members.
  std::vector<int64_t> ranks;  ///< Its members, as ranks of the World.
  std::string name;            ///< In messages, after "collective 7": " of the group of ranks 0 and 2".
  /// How many of its collectives this rank has entered. Called from the thread of Arrivals too.
  std::function<uint64_t()> sequence;
};

/// Keeps this rank's sequence numbers (collectives entered so far, in each group) in the store.
///
/// A thread of its own publishes the numbers that have changed, at most every `interval`: the collectives themselves
/// pay nothing, and a rank that hangs in its own code still has its last number there for the others to read.
class Arrivals {
 public:
  /// `store` is cloned: a client that waits for a key blocks every other user of the same connection. `world` is the
  /// group of all ranks, number 0.
  Arrivals(c10d::Store& store, int64_t rank, std::chrono::milliseconds interval, CountedGroup world);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// Gives the number of the group.
  size_t add(CountedGroup group);

  /// One sentence on who is missing at this rank's current collective of `group`, from the other ranks' numbers; then
  /// the failure that another rank has reported.
  std::string describe(size_t group) const;
  /// The same of a message that does not come from, or go to, `peer`, a rank of the World.
  std::string describe_peer(size_t group, int64_t peer) const;
  /// Whether another rank's report is known here.
  bool has_heard() const;

  /// One sentence on the ranks that have not come to a meeting outside the collectives, as the end of the job is.
  std::string describe_absent(const std::vector<int64_t>& absent) const;

  /// At the end of the job: a sentence on a rank that has entered more collectives of some group than this one, and so
  /// waits in them for ever. Errors: as the store's.
  std::optional<std::string> describe_ahead() const;

  /// Leaves `text` for the other ranks' describe(); of several reports the first counts. Waits for at most three
  /// intervals until the ranks that are waiting have read it: the store may end with this rank.
  void report(const std::string& text);

 private:
  struct Published {
    CountedGroup group;
    std::optional<uint64_t> number;  ///< The last that this rank has put into the store.
  };

  void publish_until_stopped();
  // These with mutex_ held.
  /// Publishes what has changed; false when nothing has.
  bool publish();
  /// Reads the report once there is one. True when there is.
  bool listen() const;
  Numbers numbers(const CountedGroup& group) const;
  /// `describe` of the numbers, then the report.
  std::string with_report(const std::function<std::string()>& describe) const;

  c10::intrusive_ptr<c10d::Store> store_;
  const int64_t rank_;
  const std::chrono::milliseconds interval_;
  mutable std::mutex mutex_;
  std::vector<Published> groups_;
  mutable std::string heard_;  ///< The report.
  std::mutex stop_mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread thread_;
};

/// Pure: `own` is this rank's number.
std::string describe_arrivals(uint64_t own, int64_t rank, const Numbers& numbers);

/// Pure: `absent` are not there; it may be this rank that came too early, having entered fewer collectives than they.
std::string describe_absent_ranks(uint64_t own, const std::vector<int64_t>& absent, const Numbers& numbers);

/// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2, 3 and 60 more".
std::string list_ranks(const std::vector<int64_t>& ranks);

}  // namespace yoke::dist
