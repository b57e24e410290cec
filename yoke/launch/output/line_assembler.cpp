#include "yoke/launch/output/line_assembler.h"

#include <utility>

namespace yoke::launch {
namespace {

/// Returns the largest number of bytes up to `limit` that does not split a UTF-8 character.
size_t whole_characters(std::string_view text, size_t limit) {
  size_t count = limit;
  while (count > 0 && limit - count < 4 && (static_cast<unsigned char>(text[count]) & 0xC0) == 0x80) --count;
  return count > 0 && limit - count < 4 ? count : limit;
}

}  // namespace

void LineAssembler::feed(std::string_view bytes, std::string& lines) {
  for (auto end = bytes.find('\n'); end != bytes.npos; end = bytes.find('\n')) {
    add(bytes.substr(0, end), lines);
    emit(lines);
    bytes.remove_prefix(end + 1);
  }
  add(bytes, lines);
}

void LineAssembler::add(std::string_view bytes, std::string& lines) {
  for (auto end = bytes.find('\r'); end != bytes.npos; end = bytes.find('\r')) {
    segment_.append(bytes.substr(0, end));
    if (!segment_.empty()) previous_ = std::exchange(segment_, {});
    rewrites_ = true;
    bytes.remove_prefix(end + 1);
  }
  segment_.append(bytes);
  while (segment_.size() > max_line_bytes_) {
    const auto count = whole_characters(segment_, max_line_bytes_);
    lines.append(prefix_).append(segment_, 0, count).push_back('\n');
    segment_.erase(0, count);
  }
}

void LineAssembler::emit(std::string& lines) {
  lines.append(prefix_).append(segment_.empty() ? previous_ : segment_).push_back('\n');
  segment_.clear();
  previous_.clear();
  rewrites_ = false;
  next_sample_.reset();
}

void LineAssembler::sample_progress(std::chrono::steady_clock::time_point now, std::string& lines) {
  const auto text = progress();
  if (text.empty()) return;
  if (next_sample_ && now >= *next_sample_) lines.append(prefix_).append(text).push_back('\n');
  if (!next_sample_ || now >= *next_sample_) next_sample_ = now + kProgressEvery;
}

void LineAssembler::finish(std::string& lines) {
  if (!segment_.empty() || !previous_.empty()) emit(lines);
}

std::string_view LineAssembler::progress() const {
  if (!rewrites_) return {};
  return segment_.empty() ? previous_ : segment_;
}

}  // namespace yoke::launch
