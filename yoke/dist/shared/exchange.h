// yoke/dist/shared/exchange.h -- what one rank contributes to a collective, and what it does with all contributions.
//
// An exchange knows nothing of time: engine.h decides when each of these functions may be called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "yoke/dist/shared/kernels.h"
#include "yoke/dist/shared/schedule.h"
#include "yoke/dist/shared/segment.h"

namespace yoke::dist::shared {

using Chunks = std::span<const std::byte* const>;  ///< One for each rank.

/// What another host needs: `data` of any memory of this rank, which belongs at `place` of the segment.
struct Piece {
  const std::byte* place = nullptr;
  std::span<const std::byte> data;
};
using Pieces = std::vector<Piece>;
inline Piece piece_at(const std::byte* place, int64_t bytes) { return {place, {place, static_cast<size_t>(bytes)}}; }

class Exchange {
 public:
  virtual ~Exchange() = default;

  Header header;
  /// Whether contributions pass through chunks, in the order of such exchanges. All ranks decide alike. Otherwise they
  /// fit in slots.
  bool is_large = false;
  uint64_t sources = 0;  ///< The ranks whose contributions this rank takes: a bit for each.
  bool takes_from(int64_t rank) const { return (sources >> rank & 1) != 0; }
  /// The ranks that put anything into their chunks, as all ranks know. Nobody waits for those of the others.
  uint64_t senders = ~uint64_t{0};
  bool is_sent_by(int64_t rank) const { return (senders >> rank & 1) != 0; }

  /// Writes this rank's slot. In a large exchange it has no contribution, but may announce what follows.
  virtual void deposit(std::byte* slot) const = 0;
  /// How much of the slot that has written.
  virtual int64_t deposited_bytes() const = 0;
  /// Whether a rank's slot fits this rank's wishes; the headers are equal already.
  virtual bool fits(int64_t /*rank*/, const std::byte* /*slot*/) const { return true; }
  /// The end of an exchange that is not large. The slot of a rank is null if nothing is taken from it.
  virtual void finish(Chunks slots) = 0;

  /// The ranks of each host, in the order of their first ranks; empty if there is one host. Set by the Engine. What the
  /// ranks of a host give is reduced first, so that the bits do not depend on where an element lies and who reduces it.
  std::span<const std::vector<int64_t>> hosts = {};
  /// Whether the two are on one host.
  bool share_host(int64_t a, int64_t b) const;
  /// Whether no other rank is on the host of this one.
  bool is_alone(int64_t rank) const;

  // Large exchanges.
  /// Called once, with all slots. Returns the number of rounds, the same on all ranks.
  virtual int64_t begin(Chunks slots) = 0;
  virtual bool reduces() const { return false; }
  /// The ranks whose chunks reduce() reads: those of this host, and for each other host the rank that has merged its
  /// ranks' parts. Set by the Engine.
  std::span<const int64_t> contributors = {};
  virtual void stage(int64_t round, std::byte* chunk) = 0;
  /// The parts of this rank's chunk that any of `ranks`, of another host, reads. They need not be in `chunk`.
  virtual Pieces staged_for(int64_t round, const std::byte* chunk, const std::vector<int64_t>& ranks) const = 0;
  /// Reduces what the ranks `locals` have staged for each of `targets`, ranks of other hosts, into `own`, this rank's
  /// chunk.
  virtual void merge(int64_t /*round*/, Chunks /*chunks*/, std::byte* /*own*/, std::span<const int64_t> /*locals*/,
                     std::span<const int64_t> /*targets*/) {}
  /// Reduces this rank's part. Writes `result` if other ranks take it.
  virtual void reduce(int64_t /*round*/, Chunks /*chunks*/, std::byte* /*result*/) {}
  /// What ranks of other hosts take, for their `result`. It need not be in `result`.
  virtual Piece reduced(int64_t /*round*/, const std::byte* /*result*/) const { return {}; }
  virtual void take(int64_t round, Chunks chunks, Chunks results) = 0;
};

/// A collective that moves bytes. Memory must exist until it has ended.
struct CopyOptions {
  uint32_t kind = 0, type = 0, root = 0;
  /// What this rank sends: nothing, one piece to all, or with `for_each` a piece for each rank.
  std::vector<std::span<const std::byte>> send;
  bool for_each = false;
  /// What this rank receives from each rank; empty: nothing.
  std::vector<std::span<std::byte>> receive;
  /// The bytes of each piece, if they are the same on all ranks; -1 if they may differ.
  int64_t bytes = -1;
  bool is_from_root = false;  ///< Only `root` sends. Said by all ranks or none.
};
std::unique_ptr<Exchange> make_copy(const Layout& layout, int64_t rank, CopyOptions options);

/// In a Header, the reduction of a sum that the callers divide by the number of ranks.
inline constexpr uint32_t kSumOfMean = 4;

/// A collective that reduces. Memory must exist until it has ended.
struct ReduceOptions {
  uint32_t kind = 0, root = 0;
  Type type = Type::kF32;
  Reduction reduction = Reduction::kSum;
  bool is_of_mean = false;           ///< It is a sum that the caller divides: another call than a sum.
  const std::byte* input = nullptr;  ///< num_elements.
  std::byte* output = nullptr;       ///< May be `input`. Null: this rank does not want the result.
  int64_t num_elements = 0;
  bool scatters = false;  ///< `output` has this rank's block of the result alone.
  /// If the tensors of all ranks lie in it, and `output` is `input`, nothing is copied: each rank reduces its part of
  /// all tensors, and writes the result into all of them.
  std::shared_ptr<Arena> arena = nullptr;
};
std::unique_ptr<Exchange> make_reduction(const Layout& layout, int64_t rank, const ReduceOptions& options);

}  // namespace yoke::dist::shared
