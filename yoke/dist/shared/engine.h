// yoke/dist/shared/engine.h -- carries out a rank's collectives in shared memory.
//
// A collective that is small enough is deposited when it is started, and ended by whoever waits for it. So no other
// thread has to wake up. Larger ones pass through chunks, one after the other, usually on the engine's own thread.
//
// Messages between two ranks are moved by whoever waits for one. The engine's thread moves those for which nobody
// waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/dist/shared/exchange.h"
#include "yoke/dist/shared/messages.h"
#include "yoke/dist/shared/mirror.h"
#include "yoke/dist/shared/pause.h"
#include "yoke/dist/shared/segment.h"
#include "yoke/dist/shared/topology.h"

namespace yoke::dist::shared {

/// A collective or a message in flight, given to Engine::start(). Its members belong to the Engine then.
struct Transfer {
  std::unique_ptr<Exchange> exchange;  ///< Null if it is a message.
  std::optional<Message> message;
  std::function<void(std::exception_ptr)> on_end;  ///< Called once, without locks, before wait() returns true.
  Clock::time_point deadline;

  // Guarded by the Engine's mutex.
  uint64_t sequence = 0;
  bool is_deposited = false, is_driven = false, has_ended = false;

  // Of the thread that drives it.
  bool has_begun = false;
  std::exception_ptr mismatch;  ///< Not null: another rank has called something else.
  bool awaits_calls = false;    ///< The calls of more ranks tell which of them differ from the most.
  uint64_t base = 0;            ///< The number of rounds before this exchange.
  uint64_t num_rounds = 0, num_staged = 0, num_merged = 0, num_reduced = 0, num_taken = 0;
};

/// Ends a collective of which ranks of the group have ended, give no answer, or have not gone on by its deadline.
class RankFailure : public std::runtime_error {
 public:
  enum class Loss { kNone, kOfEnd, kOfSilence };
  RankFailure(const std::string& text, std::vector<int64_t> which, Loss loss = Loss::kNone, std::string on_host = "",
              int64_t seer = -1)
      : std::runtime_error(text),
        ranks(std::move(which)),
        has_ended(loss == Loss::kOfEnd),
        is_silent(loss == Loss::kOfSilence),
        host(std::move(on_host)),
        seen_by(seer) {}
  const std::vector<int64_t> ranks;
  const bool has_ended;    ///< Otherwise they only do not go on.
  const bool is_silent;    ///< The connection gives no answer. The rank may run, behind a network that is cut.
  const std::string host;  ///< Of the first of them; empty if that is unknown or means nothing.
  const int64_t seen_by;   ///< The rank whose connection gives no answer; -1: this one.
};

/// Ends a collective of which ranks have called different ones.
class Mismatch : public Error {
 public:
  struct Call {
    int64_t rank = 0;
    std::string words;  ///< What it has called.
  };
  Mismatch(std::vector<Call> which, bool before);
  /// Pure. Such as "ranks 0, 2 have called all_reduce of 8 Float with SUM, rank 1 has called barrier".
  static std::string describe(const std::vector<Call>& calls);

  const std::vector<Call> calls;  ///< Of this rank, and of those whose calls it has read.
  const bool is_before;           ///< They differ in the collective before the one that ends.
};

inline constexpr const char* kStopped = "the connections of the group have been closed";

/// Who makes a collective progress: the Engine's thread, or, as long as it is possible, the caller of wait().
enum class Driver { kEngine, kWaiter };

/// Threads  any.
class Engine {
 public:
  struct Options {
    int64_t rank = 0;
    /// How long a rank that finds another collective than its own waits before it fails. Meanwhile others can find out
    /// what each rank has called.
    std::chrono::milliseconds mismatch_patience{};
    std::string (*describe)(const Header& header) = nullptr;  ///< What a call is, in words.
    std::vector<std::string> host_names = {};                 ///< By rank; empty on one host.
    /// Called now and then while collectives or messages wait, on any thread, to end them by an exception; or empty.
    std::function<void()> check = {};
  };
  /// `links`: the connections to ranks of other hosts, if the group has any. When it returns, other ranks notice if
  /// this process ends.
  Engine(std::shared_ptr<Segment> segment, const Options& options, Links links = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Never waits. After a failure, every collective ends with the same one.
  void start(const std::shared_ptr<Transfer>& transfer, Driver driver);
  /// Makes progress without waiting. Returns whether it has ended.
  bool poll(const std::shared_ptr<Transfer>& transfer);
  /// Returns whether it has ended by `until`.
  bool wait(const std::shared_ptr<Transfer>& transfer, Clock::time_point until);
  /// The Engine's thread ends it, even if nobody waits.
  void hand_over(const Transfer& transfer);
  /// After a failure: returns when all collectives have ended, or after `limit`.
  void wait_for_all(std::chrono::milliseconds limit);
  /// Ends all collectives in flight with an error. Other ranks see that this one is gone.
  void stop();

  /// Whether the caller is the Engine's thread, on which collectives depend that nobody waits for.
  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

  uint64_t num_started() const { return num_started_ + num_messages_; }
  /// The ranks that take part no longer because they have ended, in order.
  std::vector<int64_t> ended_ranks() const;
  /// Whether `rank` needs nothing more of the collectives that this one has started, as far as it is known here.
  bool has_consumed_all(int64_t rank) const { return segment_->state(rank).consumed.load() >= num_started_; }
  const Layout& layout() const { return segment_->layout(); }

 private:
  enum class Step { kEnded, kMoved, kStuck };

  void run();
  bool drive(const std::shared_ptr<Transfer>& transfer, Clock::time_point until);
  Step advance_or_end(const std::shared_ptr<Transfer>& transfer, bool looks_around);
  Step look_around(Transfer& transfer);
  Step advance(Transfer& transfer);
  bool begin(Transfer& transfer);
  /// Throws, or remembers in the transfer, that the calls of ranks differ. REQUIRES: all slots that it reads are there,
  /// and it has not consumed its own.
  void note_mismatch(Transfer& transfer);
  Step move_rounds(Transfer& transfer);
  void end(const std::shared_ptr<Transfer>& transfer, std::exception_ptr error);
  /// `num_ending`: what it takes from num_ending_.
  void notify_of_end(Transfer& transfer, const std::exception_ptr& error, int num_ending = 0);
  void ring();
  void ring(int64_t rank);

  struct Sleep {
    Clock::time_point until;
    uint64_t news = 0;
    bool with_messages = false;
  };
  /// Until another rank rings, or `num_news_` is not `news` any more, because neither `transfers` nor, if it is asked
  /// for, messages can move.
  void sleep(const Transfers& transfers, const Sleep& sleep);
  void wake_thread();

  // Messages, in engine_messages.cpp.
  bool wait_for_message(const std::shared_ptr<Transfer>& transfer, Clock::time_point until);
  bool move_messages(bool looks_around);
  bool check_messages(Transfers& ended);
  void start_watch();
  /// Waits until `num_news_` is not `news` any more. Returns whether it is time for the thread to move messages.
  bool watch(std::unique_lock<std::mutex>& lock, uint64_t news);
  bool are_messages_alone() const { return !messages_.are_none() && num_message_waiters_ == 0; }

  template <class Front>
  void for_each_front(const Transfer& transfer, const Front& front) const;
  bool can_move(const Transfer& transfer) const;
  std::vector<int64_t> missing_ranks(const Transfer& transfer) const;
  struct Lost {
    int64_t rank = 0;
    bool is_silent = false;
    int64_t seen_by = -1;  ///< The rank whose connection to it gives no answer, if that is known and another one.
  };
  /// A rank that has ended or is silent, if that is so for one of `missing`, or it has given up because of that.
  std::optional<Lost> lost_rank(const std::vector<int64_t>& missing) const;
  int64_t carrier_of(int64_t rank) const { return topology_.carrier_of(rank); }
  /// Of those that do not go on, the ones for which the others wait, too.
  std::vector<int64_t> late_ranks(const std::vector<int64_t>& missing, const Transfer& transfer) const;
  void give_up(uint64_t why);
  RankFailure silence_of(int64_t rank, int64_t seen_by = -1) const;
  /// Throws the reason why nobody waits any longer for these ranks, if there is one.
  void check_missing(const std::vector<int64_t>& missing, const Transfer& transfer);
  /// Remembers why no collective can succeed any more. Returns the first such reason.
  std::exception_ptr set_broken(std::exception_ptr error);
  /// Nobody drives a transfer that waits for a slot, so the thread looks whether the ranks that occupy it have ended.
  void look_around_for_slots();
  bool is_over() const;
  /// Ends those that nobody drives.
  void end_all(const std::exception_ptr& error);

  /// Whether all ranks have published at least `number`; of `which`, a bit for each.
  bool all_have(std::atomic<uint64_t> RankState::*counter, uint64_t number, uint64_t which = ~uint64_t{0}) const;
  void publish_taken(const Transfer& transfer);
  /// Whether what ranks of a host have staged goes to other hosts as one part: a large reduction over several hosts.
  bool is_merged(const Exchange& exchange) const { return mirror_ && exchange.reduces(); }
  bool are_staged_here(uint64_t number) const;
  bool can_reduce(const Transfer& transfer) const;
  void merge(Transfer& transfer);

  // REQUIRES: mutex_ is held.
  /// Deposits in order, as far as slots are free. Returns whether it has deposited anything.
  bool deposit();
  /// The number of the collective whose slot this one uses next.
  uint64_t before(const Transfer& transfer) const;
  bool claim(Transfer& transfer);
  void consume(uint64_t sequence);
  void take_handed_over(Transfers& driven);

  const std::shared_ptr<Segment> segment_;
  const int64_t rank_, num_ranks_;
  const int num_spins_;
  const Options options_;
  const Topology topology_;
  std::vector<const std::byte*> chunks_, results_;  ///< Of the thread that drives the first large exchange.

  std::mutex mutex_;
  std::condition_variable work_;                   ///< For the Engine's thread.
  std::condition_variable ended_;                  ///< A transfer has ended, or has lost its driver.
  std::deque<std::shared_ptr<Transfer>> pending_;  ///< All that have not ended, by sequence.
  std::deque<Transfer*> large_;                    ///< Those of `pending_` that are large.
  int num_ending_ = 0;                             ///< Their on_end() has not returned.
  uint64_t previous_ = 0;                          ///< Header::previous of the next that is deposited.
  uint64_t num_consumed_ = 0, num_consumed_sent_ = 0;
  uint64_t num_handed_over_ = 0;          ///< The Engine's thread drives transfers up to this number.
  std::vector<uint64_t> consumed_early_;  ///< A ring: numbers that were consumed before a lower one.
  std::exception_ptr broken_;
  /// Whether the thread looks for messages now and then, and how often it has found that none was new.
  bool watches_ = false;
  int num_quiet_looks_ = 0;
  uint64_t num_messages_seen_ = 0;

  const std::unique_ptr<Mirror> mirror_;  ///< Null on one host.
  Messages messages_;
  std::atomic<uint64_t> num_messages_ = 0;
  std::atomic<int> num_message_waiters_ = 0;
  std::atomic<uint64_t> num_started_ = 0;  ///< Collectives.
  std::atomic<uint64_t> num_news_ = 0;     ///< Changes when there may be work for the thread.
  std::atomic<bool> is_stopping_ = false, is_broken_ = false;
  uint64_t num_rounds_ = 0;  ///< Of all large exchanges so far; of the thread that drives the first one.
  bool is_alive_ = false;
  std::thread thread_;  ///< Declared last: it uses the other members.
};

}  // namespace yoke::dist::shared
