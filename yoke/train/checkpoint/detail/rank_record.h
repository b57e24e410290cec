// yoke/train/checkpoint/detail/rank_record.h -- what one rank alone has of a training's state, in a file that outlives
// the rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace yoke::train::detail {

/// A file that is mapped into memory, so that what was written is there after the process was killed, and the next
/// process of the rank reads it. A kill while it is written leaves it empty.
class RankRecord {
 public:
  /// Maps the file if it exists. Errors  as errno says, with the path.
  explicit RankRecord(std::string path);
  ~RankRecord();
  RankRecord(const RankRecord&) = delete;
  RankRecord& operator=(const RankRecord&) = delete;

  /// `step` is not negative. Errors  as errno says, with the path: the file system is full.
  void write(int64_t step, std::span<const std::string_view> pieces);
  void clear();
  std::optional<int64_t> step() const;  ///< nullopt if it is empty.
  std::string_view bytes() const;       ///< All pieces, valid until the next write(). REQUIRES: step().

 private:
  struct Header;
  void map(int64_t size);
  Header* header() const { return static_cast<Header*>(memory_); }

  const std::string path_;
  void* memory_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace yoke::train::detail
