// yoke/launch/output/recent_lines.h -- the last lines of a job, for `yoke logs`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::launch {

enum class LineStream : int32_t { kOut, kErr };

/// A ring of fixed size, allocated for the first line. Each reader has its own position and delays nobody. A slow
/// reader misses lines that were overwritten meanwhile, and is told how many.
class RecentLines {
 public:
  static constexpr int64_t kLauncher = -1;  ///< The rank of lines of the launcher itself.
  static constexpr size_t kMaxLineBytes = 1 << 16;

  /// REQUIRES: `capacity_bytes` is a power of two.
  explicit RecentLines(size_t capacity_bytes = 1 << 20) : capacity_(capacity_bytes) {}

  /// Adds a line; `text` has no line feed. Keeps at most kMaxLineBytes (or half the ring, if that is less).
  void add(int64_t rank, LineStream stream, std::string_view text);

  /// The position of a reader. A new one is before the oldest line.
  struct Cursor {
    uint64_t offset = 0;  ///< The offset of the next line, counted from the first byte ever added.
    uint64_t number = 0;  ///< The number of the next line, counted from the first line ever added.
  };
  struct Line {
    int64_t rank = 0;
    LineStream stream = LineStream::kOut;
    std::string text;
    uint64_t num_missed = 0;  ///< Lines before this one that were overwritten before the reader took them.
    uint64_t num_gone = 0;    ///< Lines that were overwritten before the reader began; set in its first line.
  };
  struct Tail {
    Cursor begin;
    bool is_whole = true;  ///< False if some of the requested lines were overwritten.
  };
  /// Returns the position before the last `count` lines (of `rank` if given). Lines of other ranks may be in between.
  Tail last(uint64_t count, std::optional<int64_t> rank = {}) const;
  uint64_t num_overwritten() const { return first_.number; }
  /// Takes the next line; returns nullopt if there is none yet. Lines older than the reader's first line do not count
  /// as missed.
  std::optional<Line> next(Cursor& cursor) const;

 private:
  struct Header {
    int64_t rank;
    LineStream stream;
    uint32_t num_bytes;
  };
  static uint64_t record_bytes(size_t num_bytes);
  char* place_of(uint64_t offset) const { return ring_.get() + (offset & (capacity_ - 1)); }
  Header header_at(uint64_t offset) const;

  size_t capacity_;
  std::unique_ptr<char[]> ring_;
  Cursor first_, end_;
};

}  // namespace yoke::launch
