// yoke/dist/shared/segment.h -- memory that the ranks of one host share: an anonymous file (memfd) that they have
// mapped.
//
// The file has no name, so nothing remains when the last rank has ended, whatever ended it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "yoke/base/file.h"
#include "yoke/dist/shared/arena.h"
#include "yoke/dist/shared/layout.h"

namespace yoke::dist::shared {

/// What all ranks of a collective must agree on, so that a rank recognises another collective.
struct Header {
  uint32_t kind = 0, reduction = 0, type = 0, root = 0;
  int64_t bytes = 0;  ///< Of a contribution; -1 if they may differ.
  /// The collective before this one, in_short(); 0 for the first one. In some collectives a rank reads no slot of
  /// another one, so that a difference shows in the next.
  uint64_t previous = 0;
  bool operator==(const Header&) const = default;
};

/// All but the bytes. Numbers of kinds, reductions, types and ranks are small.
constexpr uint64_t in_short(const Header& header) {
  return uint64_t{header.kind} << 48 | uint64_t{header.reduction} << 32 | uint64_t{header.type} << 16 | header.root;
}
constexpr Header from_short(uint64_t text) {
  const auto part = [&](int shift) { return static_cast<uint32_t>(text >> shift & 0xffff); };
  return {.kind = part(48), .reduction = part(32), .type = part(16), .root = part(0), .bytes = -1};
}

/// A rank's contribution to one collective. Its data follow on the next cache line.
struct alignas(kLineBytes) Slot {
  std::atomic<uint64_t> sequence = 0;  ///< The number of the collective; written last.
  Header header;

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
  static const Slot& of(const std::byte* data) { return *(reinterpret_cast<const Slot*>(data) - 1); }
};

/// What a rank publishes. Each rank writes its own, except `bell`. Those of a rank of another host are written by its
/// carrier (mirror.h).
///
/// Memory order: what a rank publishes here, in a Slot and in a Channel is written with a sequentially consistent
/// store, after the data that it announces, and read with such a load before the data. A reader that sees the number
/// therefore sees the data. That is more than release and acquire, because a rank that goes to sleep must not miss a
/// number, nor its writer the sleeper (engine.cpp).
struct alignas(kLineBytes) RankState {
  /// Locked by a thread of the rank for as long as the rank takes part. If the thread ends, or the process by any
  /// signal, the kernel marks the lock, in every PID namespace.
  pthread_mutex_t alive;
  /// Why the rank takes part no longer by its own decision: 0: it does take part; kOwnEnd: its program ends, or another
  /// rank has ended without a decision; kEndOf + R: rank R has ended; kSilenceOf + R: the connection of rank R gives no
  /// answer.
  std::atomic<uint64_t> has_given_up = 0;
  /// Of a rank of another host: 0, or why its connection to this host is not there any more, kClosed or kSilent.
  std::atomic<uint64_t> is_cut_off = 0;
  std::atomic<uint64_t> carried_at = 0;  ///< When the thread of the rank's Mirror ran last, in ms of the host's clock.
  alignas(kLineBytes) std::atomic<uint64_t> staged = 0;    ///< Rounds of which the rank's chunk is filled.
  std::atomic<uint64_t> merged = 0;                        ///< Rounds of which other hosts can have what they reduce.
  std::atomic<uint64_t> reduced = 0;                       ///< Rounds of which the rank's part of the result is there.
  std::atomic<uint64_t> taken = 0;                         ///< Rounds of which the rank needs no chunk any more.
  alignas(kLineBytes) std::atomic<uint64_t> consumed = 0;  ///< Collectives of which the rank needs no slot any more.
  alignas(kLineBytes) std::atomic<uint32_t> bell = 0;      ///< A futex; changes to wake the rank's sleepers.
  std::atomic<uint32_t> num_sleepers = 0;                  ///< Threads of the rank that sleep, or are about to.
};

inline constexpr uint64_t kOwnEnd = 1, kEndOf = 2, kSilenceOf = uint64_t{1} << 32;
/// The other side has closed it, as the kernel does for a process that has ended; it has given no answer for a minute.
inline constexpr uint64_t kClosed = 1, kSilent = 2;

/// A ring of messages from one rank to another. Positions count bytes since the beginning.
struct alignas(kLineBytes) Channel {
  std::atomic<uint64_t> written = 0;                   ///< Of the rank that sends.
  alignas(kLineBytes) std::atomic<uint64_t> read = 0;  ///< Of the rank that receives.

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

/// Places of all ranks, one rank after the other. No page has places of two ranks, so that a page can lie on the NUMA
/// node of its rank.
struct Part {
  int64_t begin = 0, stride = 0, of_rank = 0;  ///< In bytes: from place to place, and from rank to rank.

  int64_t at(int64_t rank, int64_t place) const { return begin + rank * of_rank + place * stride; }
};

/// Where things lie in the file.
struct Offsets {
  int64_t states = 0;
  Part slots, chunks, results, channels;
  int64_t end = 0;
};

/// Whether the kernel marks the locks of threads that end, so that other ranks notice it. A sandbox may lack this.
bool kernel_marks_ends();

class Segment {
 public:
  /// Creates the file. `file` becomes its descriptor, to be passed to the other ranks.
  /// Errors  as errno says: no memfd_create, out of memory or descriptors, the limit of a file's size.
  static std::shared_ptr<Segment> create(const Layout& layout, UniqueFd& file);
  /// The place for tensors of `rank` in the file; null if the layout has none.
  std::shared_ptr<Arena> arena_of(const UniqueFd& file, int64_t rank) const;
  /// Maps the file of another rank. Errors  as errno says; kDataLoss if it is not such a file, or not sealed;
  /// kFailedPrecondition if the rank has another version of yoke or of the C library.
  static std::shared_ptr<Segment> map(const UniqueFd& file);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const Layout& layout() const { return layout_; }
  RankState& state(int64_t rank) const { return reinterpret_cast<RankState*>(memory_ + at_.states)[rank]; }
  Slot& slot(int64_t rank, uint64_t sequence) const {
    const auto place = static_cast<int64_t>(sequence) % layout_.num_slots;
    return *reinterpret_cast<Slot*>(memory_ + at_.slots.at(rank, place));
  }
  std::byte* chunk(int64_t rank, uint64_t round) const;   ///< What the rank contributes in this round.
  std::byte* result(int64_t rank, uint64_t round) const;  ///< The part that the rank has reduced in this round.
  Channel& channel(int64_t from, int64_t to) const;
  /// Touches the rank's slots, so that their pages lie on the NUMA node of the caller, who writes there, and not on
  /// that of a rank that looks into a slot before it is filled. All else is first touched by who writes it. REQUIRES:
  /// no rank has an Engine yet.
  void touch_slots(int64_t rank) const;

  /// Where something in the segment lies, so that the same place can be found in that of another host.
  uint64_t offset_of(const void* place) const {
    return static_cast<uint64_t>(static_cast<const std::byte*>(place) - memory_);
  }
  /// Null if so many bytes do not lie in the segment, behind its head.
  std::byte* place_at(uint64_t offset, uint64_t bytes) const;
  /// What segments have in common that belong to one group over several hosts.
  std::span<const std::byte> head() const;

  /// Locks the rank's `alive`. The calling thread keeps it until it ends.
  void mark_alive(int64_t rank) const;
  /// Whether the thread that called mark_alive() has ended, or the rank of another host is cut off. False before it has
  /// called that.
  bool has_ended(int64_t rank) const;
  /// Whether the rank of another host is cut off because its connection gives no answer, so that it may still run.
  bool is_silent(int64_t rank) const { return state(rank).is_cut_off.load(std::memory_order_seq_cst) == kSilent; }

 private:
  Segment(const Layout& layout, const UniqueFd& file);

  const Layout layout_;
  const Offsets at_;
  std::byte* memory_ = nullptr;
};

}  // namespace yoke::dist::shared
