#include "yoke/launch/recent_lines.h"

#include <algorithm>
#include <cstring>

namespace yoke::launch {

void RecentLines::copy_in(uint64_t offset, const void* from, size_t count) {
  const size_t at = offset % capacity_, before_end = std::min(count, capacity_ - at);
  std::memcpy(ring_.get() + at, from, before_end);
  std::memcpy(ring_.get(), static_cast<const char*>(from) + before_end, count - before_end);
}

void RecentLines::copy_out(uint64_t offset, void* to, size_t count) const {
  const size_t at = offset % capacity_, before_end = std::min(count, capacity_ - at);
  std::memcpy(to, ring_.get() + at, before_end);
  std::memcpy(static_cast<char*>(to) + before_end, ring_.get(), count - before_end);
}

RecentLines::Header RecentLines::header_at(uint64_t offset) const {
  Header header;
  copy_out(offset, &header, sizeof header);
  return header;
}

void RecentLines::add(int64_t rank, LineStream stream, std::string_view text) {
  if (!ring_) ring_ = std::make_unique_for_overwrite<char[]>(capacity_);  // pages that are not used cost nothing
  text = text.substr(0, std::min(kMaxLineBytes, capacity_ / 2 - sizeof(Header)));
  const Header header{rank, stream, static_cast<uint32_t>(text.size())};
  const auto end = end_.offset + sizeof header + text.size();
  while (end - first_.offset > capacity_) {
    first_.offset += sizeof header + header_at(first_.offset).num_bytes;
    ++first_.number;
  }
  copy_in(end_.offset, &header, sizeof header);
  copy_in(end_.offset + sizeof header, text.data(), text.size());
  end_ = {end, end_.number + 1};
}

std::optional<RecentLines::Line> RecentLines::next(Cursor& cursor) const {
  const bool is_new = cursor.number == 0;
  const auto num_missed = cursor.number < first_.number && !is_new ? first_.number - cursor.number : 0;
  if (cursor.number < first_.number) cursor = first_;
  if (cursor.number == end_.number) return std::nullopt;
  const auto header = header_at(cursor.offset);
  Line line{header.rank, header.stream, std::string(header.num_bytes, '\0'), num_missed};
  copy_out(cursor.offset + sizeof header, line.text.data(), line.text.size());
  cursor = {cursor.offset + sizeof header + line.text.size(), cursor.number + 1};
  return line;
}

}  // namespace yoke::launch
