#include "yoke/train/data/detail/stream_order.h"

#include <utility>

#include "yoke/base/error.h"
#include "yoke/train/data/detail/permutation.h"

namespace yoke::train::detail {

StreamOrder::StreamOrder(OpenStream open, const StreamOrderOptions& options)
    : open_(std::move(open)), options_(options) {
  if (!options_.shuffle) options_.window = 1;
}

void StreamOrder::seek(int64_t pass, int64_t item, int64_t place) {
  // If the new position is where the last batch ended, reading continues in the open stream.
  const bool is_next =
      options_.continues_passes && stream_ && !error_ && !is_sought_ && pass == first_pass_ && item == item_;
  first_pass_ = pass;
  item_ = item;
  place_ = place;
  is_sought_ = !is_next;
  error_ = nullptr;
}

std::vector<StreamItem> StreamOrder::read() {
  if (error_) std::rethrow_exception(error_);
  try {
    if (std::exchange(is_sought_, false)) enter();
    return read_batch();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

/// Opens the pass that contains the item of seek(), and skips the windows before it.
void StreamOrder::enter() {
  int64_t position = item_;
  pass_ = first_pass_;
  while (true) {
    stream_ = open_(pass_);
    num_windows_ = position / options_.window;
    const int64_t num_before = num_windows_ * options_.window;
    const int64_t num_skipped = num_before > 0 ? stream_->skip(num_before) : 0;
    window_.clear();
    next_ = 0;
    const bool is_inside = num_skipped == num_before && (num_before == position || fill());
    const int64_t in_window = position - num_before;
    if (is_inside && in_window <= static_cast<int64_t>(window_.size())) {
      next_ = static_cast<size_t>(in_window);
      return;
    }
    const int64_t size = num_skipped < num_before ? num_skipped : num_before + static_cast<int64_t>(window_.size());
    if (!options_.continues_passes) {  // the pass has become shorter, and the position is past its end
      window_.clear();
      return;
    }
    if (size == 0) throw Error(ErrorCode::kInvalidArgument, "loader: pass {} of the stream has no samples", pass_);
    position -= size;
    ++pass_;
  }
}

bool StreamOrder::fill() {
  window_.clear();
  next_ = 0;
  std::vector<StreamItem> items;
  items.reserve(static_cast<size_t>(options_.window));
  while (stream_ && static_cast<int64_t>(items.size()) < options_.window) {
    auto item = stream_->next();
    if (!item) {
      stream_.reset();  // a reader's next() is not called after it has returned the end
      break;
    }
    items.push_back(std::move(item));
  }
  const auto size = static_cast<int64_t>(items.size());
  const Permutation order(size, options_.seed + static_cast<uint64_t>(num_windows_) * 0x9E3779B97F4A7C15u, pass_);
  for (int64_t i = 0; i < size; ++i) {
    window_.push_back(items[static_cast<size_t>(options_.shuffle ? order(i) : i)]);
  }
  ++num_windows_;
  return size > 0;
}

std::vector<StreamItem> StreamOrder::read_batch() {
  const int64_t per_batch = options_.batch_size * options_.num_ranks;
  std::vector<StreamItem> mine, last;
  int64_t count = 0;
  const auto take = [&](const StreamItem& item) {
    if (count++ % options_.num_ranks == place_) mine.push_back(item);
  };
  while (count < per_batch) {
    if (next_ == window_.size()) {
      if (next_ > 0) last.swap(window_);
      const bool is_first = num_windows_ == 0;
      if (fill()) continue;
      if (!options_.continues_passes) break;
      if (is_first) throw Error(ErrorCode::kInvalidArgument, "loader: pass {} of the stream has no samples", pass_);
      stream_ = open_(++pass_);
      num_windows_ = 0;
      continue;
    }
    take(window_[next_++]);
  }
  if (count == per_batch) {
    item_ += per_batch;
    return mine;
  }
  if (options_.drop_last) return {};
  if (options_.exact || count == 0) return mine;
  for (size_t i = 0; count % options_.num_ranks != 0; ++i) take(last[i % last.size()]);
  return mine;
}

}  // namespace yoke::train::detail
