// yoke/dist/arrivals.h -- which rank has reached which collective, so that a timeout can name the missing ranks.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
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

#include "yoke/contract/error_file.h"

namespace c10d {
class Store;
}

namespace yoke::dist {

/// Maps each member of a group, by its rank in the World, to the number that it has published; nullopt if none yet.
using Numbers = std::map<int64_t, std::optional<uint64_t>>;

/// A collective that a rank has entered: its number, and what it is, such as "all_reduce of 8 Float" or "saving a
/// checkpoint".
struct Call {
  uint64_t number = 0;
  std::string kind;
};

/// Why a collective has ended with an error: a sentence, and the other ranks that have caused it, for the launcher.
struct Explanation {
  std::string text;
  FailureCause cause = {};
};

/// A group whose collectives are counted.
struct CountedGroup {
  std::string key;             ///< Key in the store; the same on all members.
  std::vector<int64_t> ranks;  ///< Its members, as ranks of the World.
  std::string name;            ///< Used in messages after "collective 7", as in " of the group of ranks 0 and 2".
  /// Returns how many of the group's collectives this rank has entered. Arrivals calls it on its own thread too.
  std::function<uint64_t()> sequence;
  /// Returns the last calls of which the kind is known, by number, given a result of `sequence`. Called like it.
  std::function<std::vector<Call>(uint64_t now)> calls;
};

/// Keeps this rank's sequence numbers (collectives entered so far, in each group) in the store.
///
/// A separate thread publishes the numbers that have changed, at most once per `interval`. So collectives do not become
/// slower. If a rank hangs in its own code, the other ranks can still read its last number.
///
/// If a rank has waited in a collective for a quarter of the interval, its thread compares the kind of this call with
/// that of the first rank that did so. Calls with the same number and different kinds are a mistake of the program that
/// would otherwise look like a network that is stuck. After half an interval all calls are compared that are known: the
/// one that differs may be an earlier one, in which a rank need not wait. A wait that nobody tells of (patience()) is
/// noticed if the rank's number stays the same for kNumIdle intervals, which ordinary steps do not take; then all calls
/// are compared, too. The store keeps at most kNumCallKeys calls of a group.
class Arrivals {
 public:
  static constexpr int64_t kNumIdle = 5;
  static constexpr int64_t kNumLooks = 8;
  static constexpr int64_t kLookAtAll = 2;  ///< The look of a wait in which all calls are compared.
  static constexpr uint64_t kNumCallKeys = 64;

  /// Clones `store`, because a client that waits for a key blocks every other user of the same connection. `world` is
  /// the group of all ranks; its index is 0.
  /// `also`: called in each interval on this object's thread; or empty.
  Arrivals(c10d::Store& store, int64_t rank, std::chrono::milliseconds interval, CountedGroup world,
           std::function<void()> also = {});
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// Returns the index by which the other functions identify the group.
  size_t add(CountedGroup group);

  /// Returns a sentence about the ranks whose published numbers are below this rank's number, so they have not reached
  /// this rank's current collective of `group`. Adds the failure that another rank has reported, if any. `is_lost`: a
  /// connection was lost, so those ranks have probably ended, unless a rank has reported a timeout: then that rank has
  /// closed the connection. If `is_lost` is false, this rank has timed out too, and no other rank's timeout is added.
  /// `culprits`: ranks of the World that are known to have ended, or to go on no further.
  Explanation describe(size_t group, bool is_lost, const std::vector<int64_t>& culprits = {}) const;
  /// Like describe() for a message to or from `peer` (a rank of the World): the sentence says if that rank has not
  /// arrived. It has a cause only if no connection was lost.
  Explanation describe_peer(size_t group, int64_t peer, bool is_lost) const;
  /// Returns the failure that another rank has reported, to follow a sentence: "; reported before: ..."; or nothing.
  std::string heard() const;
  /// Returns whether this rank has read another rank's report.
  bool has_heard() const;

  /// If ranks were found to wait in different collectives, returns a sentence that says where each rank is. The rank
  /// that found it has printed the sentence, because not every wait can be ended. Never waits for the store: this
  /// rank's thread reads the sentence within an interval, and describe() and describe_peer() read it at once.
  std::optional<Explanation> mismatch() const;

  /// For a rank that waits in a collective of `group` and looks again and again whether that has ended, or mismatch()
  /// is known: how long the look number `look` (from 0) may take. Has this rank's thread compare the call, which looks
  /// four times in an interval at the beginning. After half a minute, and again after twice as long, one rank prints
  /// for whom it waits.
  std::chrono::milliseconds patience(size_t group, int64_t look);

  /// Returns a sentence about the ranks `absent`, for which other ranks wait outside of a collective, such as at the
  /// end of the job.
  std::string describe_absent(const std::vector<int64_t>& absent) const;

  /// Called at the end of the job. If a rank has entered more collectives of a group than this rank, it waits in them
  /// forever, and the result describes it. Throws the store's errors.
  std::optional<Explanation> describe_ahead() const;
  std::chrono::milliseconds interval() const { return interval_; }

  /// Puts `text` into the store, so that the other ranks' describe() adds it. Only the first report is kept. Waits for
  /// up to three seconds so that waiting ranks can read the report, because the store may end with this process.
  void report(const std::string& text, bool is_timeout = false);

 private:
  struct Published {
    CountedGroup group;
    std::optional<uint64_t> number;  ///< The last number that this rank has put into the store.
    bool has_kind = false;           ///< Whether the kind of the call was known then.
    int64_t num_idle = 0;            ///< Intervals since then.
    uint64_t last_compared = 0;      ///< Of all calls that were known.
    uint64_t newest_compared = 0;    ///< While the rank waited in it.
  };
  /// A call that is another one on another rank.
  struct Difference {
    size_t group = 0;
    uint64_t sequence = 0;  ///< This rank's sequence number when the difference was found.
    uint64_t number = 0;    ///< That of the call.
    std::string sentence;   ///< What the call was on both ranks.
    std::vector<std::string> kinds;
    int64_t num_looks = 0;  ///< Since then.
  };
  struct Stall {
    size_t group = 0;
    std::chrono::milliseconds waited{0};
  };
  enum class Look { kRegular, kOfWait, kOfLongWait };

  void publish_until_stopped();
  // REQUIRES: mutex_ is held when the next functions are called.
  void take(Look look);
  /// Publishes the numbers that have changed. Returns false if no number has changed.
  bool publish(Look look);
  void set_call(Published& published);
  /// Reads another rank's report from the store. Returns whether a report exists.
  bool listen() const;
  std::string after_sentence() const;
  void compare_calls(size_t group);
  void compare_newest(size_t group);
  void compare(size_t group, const Call& call);
  /// If this rank is the first one that waits for so long, prints for whom it waits.
  void say_stall(const Stall& stall) const;
  /// If this rank still waits where it found the difference, and is the first to do so, publishes and prints it.
  void publish_difference();
  void read_mismatch() const;
  /// Returns what the members of the group have published: their numbers, and kinds, which may be empty.
  std::map<int64_t, Call> read(const CountedGroup& group) const;
  /// Returns the result of `describe`, followed by the report. Afterwards mismatch() knows what the store knows.
  std::string with_report(bool is_lost, const std::function<std::string(bool has_ended)>& describe) const;

  c10::intrusive_ptr<c10d::Store> store_;
  const int64_t rank_;
  const std::chrono::milliseconds interval_;
  const std::function<void()> also_;
  mutable std::mutex mutex_;
  std::vector<Published> groups_;
  mutable std::string heard_;               ///< The report of another rank; empty if none was read.
  mutable bool has_heard_timeout_ = false;  ///< Whether that report is of a timeout.
  std::optional<Difference> difference_;
  mutable Explanation mismatch_;  ///< Written once, before `has_mismatch_`, so it is read without the mutex.
  mutable std::atomic<bool> has_mismatch_ = false;
  std::mutex stop_mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;           ///< Guarded by stop_mutex_, like the next ones.
  bool is_wait_told_ = false;   ///< A rank waits, and its call is to be compared.
  bool is_wait_long_ = false;   ///< And so are the earlier ones.
  std::optional<Stall> stall_;  ///< This rank has waited for long.
  std::chrono::milliseconds say_after_ = std::chrono::seconds(30);
  std::thread thread_;
};

/// Pure. `own` is the sequence number of this rank, `rank`. If a connection was lost, the numbers of the others are not
/// named, because a rank that ends has not published its last ones. `culprits`: as of Arrivals::describe().
std::string describe_arrivals(uint64_t own, int64_t rank, const Numbers& numbers, bool is_lost = false,
                              const std::vector<int64_t>& culprits = {});

/// Pure. The ranks for which this rank, `rank`, has waited in `own`, its call: those that are the furthest behind. The
/// other arguments are as of describe_arrivals().
FailureCause cause_of_wait(const Call& own, int64_t rank, const std::map<int64_t, Call>& calls, const Numbers& numbers,
                           bool is_lost, const std::vector<int64_t>& culprits);

/// Pure. Why this rank, `rank`, has ended its call `own`: the connection of the rank `seen_by`, which may be another
/// one, to the rank `silent` gives no answer. `host`: of that rank; may be empty.
Explanation explain_silence(const Call& own, int64_t rank, int64_t seen_by, int64_t silent, const std::string& host);

/// Pure. This rank, `rank`, has entered `own` collectives, and has waited in vain for a message to or from `peer`. If
/// the peer is in the same collective as all the others, a later one, this rank is to blame; of two, both.
FailureCause cause_of_message(uint64_t own, int64_t rank, int64_t peer, const std::map<int64_t, Call>& calls);

/// Pure. Of ranks that wait in different calls, those that are not in the call of most; all of them if there
/// is no such call.
FailureCause cause_of_difference(const std::map<int64_t, Call>& calls);

/// Pure. `absent` are the ranks that have not arrived. If this rank has entered fewer collectives than the absent
/// ranks, the sentence says so.
std::string describe_absent_ranks(uint64_t own, const std::vector<int64_t>& absent, const Numbers& numbers);

/// Pure. Returns a sentence such as "rank 0 is at saving a checkpoint (collective 128), ranks 1 and 2 are at all_reduce
/// of 8 Float (collective 128)". Leaves out ranks whose kind is empty. Empty if nothing is known.
std::string describe_calls(const std::map<int64_t, Call>& calls);

/// Returns "rank 3", "ranks 1, 2 and 5", or "ranks 0, 1, 2, 3 and 60 more".
std::string list_ranks(const std::vector<int64_t>& ranks);

}  // namespace yoke::dist
