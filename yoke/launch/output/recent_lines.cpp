#include "yoke/launch/output/recent_lines.h"

#include <algorithm>
#include <cstring>
#include <deque>

namespace yoke::launch {

/// Returns the size of a header and its line, padded so that the end of the ring never splits a header.
uint64_t RecentLines::record_bytes(size_t num_bytes) {
  static_assert(sizeof(Header) == 16);
  return sizeof(Header) + ((num_bytes + sizeof(Header) - 1) & ~(sizeof(Header) - 1));
}

RecentLines::Header RecentLines::header_at(uint64_t offset) const {
  Header header;
  std::memcpy(&header, place_of(offset), sizeof header);
  return header;
}

void RecentLines::add(int64_t rank, LineStream stream, std::string_view text) {
  if (!ring_) ring_ = std::make_unique_for_overwrite<char[]>(capacity_);  // unused pages take no memory
  text = text.substr(0, std::min(kMaxLineBytes, capacity_ / 2 - sizeof(Header)));
  const Header header{rank, stream, static_cast<uint32_t>(text.size())};
  const auto end = end_.offset + record_bytes(text.size());
  while (end - first_.offset > capacity_) {
    first_.offset += record_bytes(header_at(first_.offset).num_bytes);
    ++first_.number;
  }
  std::memcpy(place_of(end_.offset), &header, sizeof header);
  const auto begin = end_.offset + sizeof header;
  const auto before_end = std::min(text.size(), capacity_ - (begin & (capacity_ - 1)));
  std::memcpy(place_of(begin), text.data(), before_end);
  std::memcpy(ring_.get(), text.data() + before_end, text.size() - before_end);
  end_ = {end, end_.number + 1};
}

RecentLines::Tail RecentLines::last(uint64_t count, std::optional<int64_t> rank) const {
  std::deque<Cursor> found;  // the last `count` positions so far; records can only be read forwards
  for (auto at = first_; at.number != end_.number && count > 0; ++at.number) {
    const auto header = header_at(at.offset);
    if (!rank || header.rank == *rank) {
      if (found.size() == count) found.pop_front();
      found.push_back(at);
    }
    at.offset += record_bytes(header.num_bytes);
  }
  return {.begin = found.empty() ? end_ : found.front(), .is_whole = found.size() == count || first_.number == 0};
}

std::optional<RecentLines::Line> RecentLines::next(Cursor& cursor) const {
  const bool is_new = cursor.number == 0;
  const auto num_missed = cursor.number < first_.number && !is_new ? first_.number - cursor.number : 0;
  if (cursor.number < first_.number) cursor = first_;
  if (cursor.number == end_.number) return std::nullopt;
  const auto header = header_at(cursor.offset);
  const auto begin = cursor.offset + sizeof header;
  const auto before_end = std::min<size_t>(header.num_bytes, capacity_ - (begin & (capacity_ - 1)));
  Line line{header.rank, header.stream, std::string(place_of(begin), before_end), num_missed};
  line.text.append(ring_.get(), header.num_bytes - before_end);
  cursor = {cursor.offset + record_bytes(header.num_bytes), cursor.number + 1};
  return line;
}

}  // namespace yoke::launch
