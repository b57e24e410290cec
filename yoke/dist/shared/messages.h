// yoke/dist/shared/messages.h -- messages from one rank to another, through a channel for each pair of ranks.
//
// A message is an envelope and its bytes. The sender writes both into the channel, as far as there is space, and the
// receiver reads them. A message that fits is sent before anybody receives it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "yoke/dist/shared/segment.h"

namespace yoke::dist::shared {

class Mirror;
struct Transfer;
using Transfers = std::vector<std::shared_ptr<Transfer>>;

/// Of a message that is received: from whichever rank sends one first.
inline constexpr int64_t kAnyRank = -1;

/// What a rank sends or receives. Memory must exist until it has ended.
struct Message {
  bool is_sent = false;        ///< Otherwise it is received.
  int64_t peer = 0;            ///< The other rank. When a message from kAnyRank has been received, its sender.
  uint32_t tag = 0, type = 0;  ///< The same on both sides.
  std::byte* data = nullptr;
  int64_t bytes = 0;

  int64_t num_moved = 0;  ///< Of a message that is sent: bytes in the channel so far.
  bool has_begun = false;
};

/// A rank's messages that have not ended. Messages between two ranks with the same tag arrive in the order in which
/// they were sent. One that nobody receives stays in the channel, or is kept here if a later one is received first.
///
/// Threads  any.
class Messages {
 public:
  /// `ring` wakes a rank that may sleep. `mirror` is null on one host.
  Messages(std::shared_ptr<Segment> segment, int64_t rank, Mirror* mirror, std::function<void(int64_t rank)> ring);

  void add(const std::shared_ptr<Transfer>& transfer);
  /// Moves what can be moved, without waiting. Returns whether anything has moved. Messages that are done are appended
  /// to `ended`.
  /// Errors  kFailedPrecondition: a message of another size or type was sent. No message can be received any more.
  bool move(Transfers& ended);
  bool can_move() const;

  bool are_none() const { return num_pending_ == 0; }
  struct Pending {
    std::shared_ptr<Transfer> transfer;
    int64_t peer = 0;
  };
  std::vector<Pending> pending() const;
  /// Each message is ended by whoever has got it from here or from move().
  std::vector<Pending> take_all();

 private:
  struct Envelope {
    uint32_t tag = 0, type = 0;
    int64_t bytes = 0;
  };
  /// A message that was read before a rank receives it.
  struct Kept {
    int64_t from = 0;
    Envelope envelope;
    std::vector<std::byte> data;
    std::shared_ptr<Transfer> receiver;  ///< Null until there is one.
    bool is_whole = false;
  };
  /// What is being read from a channel.
  struct Incoming {
    bool is_open = false;
    Envelope envelope;
    std::byte* to = nullptr;
    int64_t num_moved = 0;
    std::shared_ptr<Transfer> receiver;  ///< Null if the message is kept.
    std::list<Kept>::iterator kept;
  };

  // REQUIRES: mutex_ is held.
  std::vector<Pending> all_pending() const;
  bool write(int64_t to, Transfers& ended);
  bool read(int64_t from, Transfers& ended);
  void check(int64_t from, const Envelope& envelope, const Message& receiver) const;
  void open(int64_t from, const Envelope& envelope);
  void close(Incoming& incoming, Transfers& ended);
  bool give_kept(Transfers& ended);
  void give(std::list<Kept>::iterator kept, Transfers& ended);
  void end(const std::shared_ptr<Transfer>& transfer, Transfers& ended);
  /// The first that receives such a message from there.
  std::deque<std::shared_ptr<Transfer>>::iterator find_receiver(int64_t from, const Envelope& envelope);
  bool is_wanted(int64_t from) const;  ///< Whether this rank receives a message from there, with whatever tag.

  const std::shared_ptr<Segment> segment_;
  const int64_t rank_, num_ranks_, channel_bytes_;
  Mirror* const mirror_;
  const std::function<void(int64_t)> ring_;

  mutable std::mutex mutex_;
  std::vector<std::deque<std::shared_ptr<Transfer>>> outgoing_;  ///< By the rank that receives them.
  std::vector<Incoming> incoming_;                               ///< By the rank that sends them.
  std::deque<std::shared_ptr<Transfer>> receivers_;              ///< That have no message yet.
  std::list<Kept> kept_;                                         ///< In the order in which they arrived.
  std::atomic<int64_t> num_pending_ = 0;
};

}  // namespace yoke::dist::shared
