// yoke/dist/shared/layout.h -- where things lie in the memory that the ranks of one host share. Pure.
#pragma once

#include <cstdint>

namespace yoke::dist::shared {

/// Sizes that all ranks of a group agree on. Pages that nobody touches take no memory.
struct Layout {
  int64_t num_ranks = 1;
  /// A rank's contribution to a collective lies in its slot if it fits. A collective uses the slot of its number modulo
  /// num_slots.
  int64_t slot_bytes = 16 << 10;
  int64_t num_slots = 8;
  /// Larger contributions pass through chunks in rounds. Chunks are small enough to stay in the processor's caches.
  int64_t chunk_bytes = 256 << 10;
  int64_t num_chunks = 4;
  /// What is under way from one rank to another passes through a ring of so many bytes, a multiple of kLineBytes.
  int64_t channel_bytes = 256 << 10;
  /// Address space in the file for tensors of each rank; 0: tensors cannot lie in it.
  int64_t arena_bytes = 0;

  bool operator==(const Layout&) const = default;
};

/// Each rank looks at each other one, and has a part of its chunks for it. With more ranks, that is slow and takes
/// gigabytes.
inline constexpr int64_t kMostRanks = 64;

inline constexpr int64_t kLineBytes = 64;  ///< Everything begins on a cache line of its own.

constexpr int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Divides a chunk among `num_lanes` ranks: the bytes of each.
constexpr int64_t lane_bytes(const Layout& layout, int64_t num_lanes) {
  return layout.chunk_bytes / num_lanes / kLineBytes * kLineBytes;
}

/// A rank's address space for tensors. Nobody reaches the end of it.
inline constexpr int64_t kMostArenaBytes = int64_t{1} << 40;

/// The layout of a group with `num_ranks` ranks, without a place for tensors. A rank's part of a chunk has at least 16
/// KiB. Over several hosts chunks are fewer and larger, because each round costs system calls and wakes threads.
constexpr Layout layout_of(int64_t num_ranks, bool is_over_hosts = false) {
  Layout layout{.num_ranks = num_ranks};
  if (is_over_hosts) {
    layout.chunk_bytes = 1 << 20;
    layout.num_chunks = 2;
  }
  if (layout.chunk_bytes < num_ranks * (16 << 10)) layout.chunk_bytes = num_ranks * (16 << 10);
  return layout;
}

}  // namespace yoke::dist::shared
