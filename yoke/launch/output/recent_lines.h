// yoke/launch/output/recent_lines.h -- the last lines of a job, for those who come later: `yoke logs`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::launch {

enum class LineStream : int32_t { kOut, kErr };

/// A ring of fixed size, made when the first line comes. Readers keep their place themselves, so that a slow one costs
/// nothing: it misses what was overwritten meanwhile, and is told how many lines that were.
class RecentLines {
 public:
  static constexpr int64_t kLauncher = -1;  ///< In place of a rank: what the launcher said itself.
  static constexpr size_t kMaxLineBytes = 1 << 16;

  /// REQUIRES: `capacity_bytes` is a power of two.
  explicit RecentLines(size_t capacity_bytes = 1 << 20) : capacity_(capacity_bytes) {}

  /// `text` without its line feed; of a longer one than kMaxLineBytes (or half the ring) the beginning is kept.
  void add(int64_t rank, LineStream stream, std::string_view text);

  /// Where a reader is; a new one is before the oldest line.
  struct Cursor {
    uint64_t offset = 0;  ///< Of its next line, counted from the first byte that was ever added.
    uint64_t number = 0;  ///< Of its next line, counted from the first line.
  };
  struct Line {
    int64_t rank = 0;
    LineStream stream = LineStream::kOut;
    std::string text;
    uint64_t num_missed = 0;  ///< Lines that came before it and were overwritten before this reader took them.
    uint64_t num_gone = 0;    ///< Lines that were overwritten before this reader came; told with its first line.
  };
  struct Tail {
    Cursor begin;
    bool is_whole = true;  ///< Else some of the lines that were asked for are overwritten.
  };
  /// Before the last `count` lines, of `rank` if there is one. Lines of other ranks may lie between them.
  Tail last(uint64_t count, std::optional<int64_t> rank = {}) const;
  uint64_t num_overwritten() const { return first_.number; }
  /// nullopt: there is none yet. Lines older than the first one that a reader gets are not counted as missed.
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
