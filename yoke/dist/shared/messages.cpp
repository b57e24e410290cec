#include "yoke/dist/shared/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/shared/engine.h"
#include "yoke/dist/shared/kernels.h"
#include "yoke/dist/shared/mirror.h"

namespace yoke::dist::shared {
namespace {

/// So much is announced at a time, so that the receiver reads while the sender writes.
constexpr int64_t kAnnouncedBytes = 32 << 10;

uint64_t next_line(uint64_t position) { return (position + kLineBytes - 1) / kLineBytes * kLineBytes; }

/// Calls `copy(begin, count, done)` for the one or two ranges of a ring that begin at `position`.
template <class Copy>
void for_each_range(int64_t ring_bytes, uint64_t position, int64_t count, const Copy& copy) {
  const int64_t begin = static_cast<int64_t>(position % static_cast<uint64_t>(ring_bytes));
  const int64_t first = std::min(count, ring_bytes - begin);
  if (first > 0) copy(begin, first, int64_t{0});
  if (first < count) copy(int64_t{0}, count - first, first);
}

}  // namespace

Messages::Messages(std::shared_ptr<Segment> segment, int64_t rank, Mirror* mirror, std::function<void(int64_t)> ring)
    : segment_(std::move(segment)),
      rank_(rank),
      num_ranks_(segment_->layout().num_ranks),
      channel_bytes_(segment_->layout().channel_bytes),
      mirror_(mirror),
      ring_(std::move(ring)),
      outgoing_(static_cast<size_t>(num_ranks_)),
      incoming_(static_cast<size_t>(num_ranks_)) {}

void Messages::add(const std::shared_ptr<Transfer>& transfer) {
  const std::lock_guard lock(mutex_);
  const auto& message = *transfer->message;
  (message.is_sent ? outgoing_[static_cast<size_t>(message.peer)] : receivers_).push_back(transfer);
  ++num_pending_;
}

bool Messages::move(Transfers& ended) {
  const std::lock_guard lock(mutex_);
  bool has_moved = give_kept(ended);
  for (int64_t peer = 0; peer < num_ranks_; ++peer) {
    if (!outgoing_[static_cast<size_t>(peer)].empty()) has_moved |= write(peer, ended);
    if (incoming_[static_cast<size_t>(peer)].is_open || is_wanted(peer)) has_moved |= read(peer, ended);
  }
  return has_moved;
}

bool Messages::can_move() const {
  const std::lock_guard lock(mutex_);
  for (int64_t peer = 0; peer < num_ranks_; ++peer) {
    if (const auto& queue = outgoing_[static_cast<size_t>(peer)]; !queue.empty()) {
      const auto& channel = segment_->channel(rank_, peer);
      const auto used = static_cast<int64_t>(channel.written.load() - channel.read.load());
      if (channel_bytes_ - used >= (queue.front()->message->has_begun ? 1 : kLineBytes)) return true;
    }
    const bool is_open = incoming_[static_cast<size_t>(peer)].is_open;
    if (is_open || is_wanted(peer)) {
      const auto& channel = segment_->channel(peer, rank_);
      const auto used = static_cast<int64_t>(channel.written.load() - channel.read.load());
      if (used >= (is_open ? 1 : kLineBytes)) return true;
    }
  }
  return false;
}

/// The end of a message is the next line, so that envelopes are whole. The bytes up to there are counted without being
/// written, so they may count more than there is space for.
bool Messages::write(int64_t to, Transfers& ended) {
  auto& queue = outgoing_[static_cast<size_t>(to)];
  auto& channel = segment_->channel(rank_, to);
  auto position = channel.written.load(std::memory_order_relaxed);  // which only this rank changes
  bool has_moved = false;
  while (!queue.empty()) {
    auto& message = *queue.front()->message;
    const auto written_from = position;
    auto space = channel_bytes_ - static_cast<int64_t>(position - channel.read.load(std::memory_order_seq_cst));
    if (space < (message.has_begun ? 1 : kLineBytes)) break;
    if (!message.has_begun) {
      const Envelope envelope{.tag = message.tag, .type = message.type, .bytes = message.bytes};
      std::memcpy(channel.data() + position % static_cast<uint64_t>(channel_bytes_), &envelope, sizeof envelope);
      message.has_begun = true;
      position += kLineBytes;
      space -= kLineBytes;
    }
    const int64_t count = std::min({message.bytes - message.num_moved, space, kAnnouncedBytes});
    for_each_range(channel_bytes_, position, count, [&](int64_t begin, int64_t size, int64_t done) {
      copy_to_shared(channel.data() + begin, message.data + message.num_moved + done, size);
    });
    message.num_moved += count;
    position += static_cast<uint64_t>(count);
    const auto written_to = position;
    if (message.num_moved == message.bytes) {
      position = next_line(position);
      end(queue.front(), ended);
      queue.pop_front();
    }
    channel.written.store(position, std::memory_order_seq_cst);
    if (mirror_ != nullptr) {
      Pieces written;
      for_each_range(
          channel_bytes_, written_from, static_cast<int64_t>(written_to - written_from),
          [&](int64_t begin, int64_t size, int64_t) { written.push_back(piece_at(channel.data() + begin, size)); });
      mirror_->publish_to(to, {channel.written, position}, written);
    }
    ring_(to);
    has_moved = true;
  }
  return has_moved;
}

bool Messages::read(int64_t from, Transfers& ended) {
  auto& incoming = incoming_[static_cast<size_t>(from)];
  auto& channel = segment_->channel(from, rank_);
  auto position = channel.read.load(std::memory_order_relaxed);  // which only this rank changes
  bool has_moved = false;
  while (incoming.is_open || is_wanted(from)) {
    auto available = static_cast<int64_t>(channel.written.load(std::memory_order_seq_cst) - position);
    if (available < (incoming.is_open ? 1 : kLineBytes)) break;
    if (!incoming.is_open) {
      Envelope envelope;
      std::memcpy(&envelope, channel.data() + position % static_cast<uint64_t>(channel_bytes_), sizeof envelope);
      open(from, envelope);
      position += kLineBytes;
      available -= kLineBytes;
    }
    const int64_t count = std::min({incoming.envelope.bytes - incoming.num_moved, available, kAnnouncedBytes});
    for_each_range(channel_bytes_, position, count, [&](int64_t begin, int64_t size, int64_t done) {
      std::memcpy(incoming.to + incoming.num_moved + done, channel.data() + begin, static_cast<size_t>(size));
    });
    incoming.num_moved += count;
    position += static_cast<uint64_t>(count);
    if (incoming.num_moved == incoming.envelope.bytes) {
      position = next_line(position);
      close(incoming, ended);
    }
    channel.read.store(position, std::memory_order_seq_cst);
    if (mirror_ != nullptr) mirror_->publish_to(from, {channel.read, position});
    ring_(from);
    has_moved = true;
  }
  return has_moved;
}

/// Throws if `receiver` expects another message.
void Messages::check(int64_t from, const Envelope& envelope, const Message& receiver) const {
  if (receiver.bytes == envelope.bytes && receiver.type == envelope.type) return;
  const auto what = receiver.bytes == envelope.bytes
                        ? std::string("one of another dtype than this rank receives")
                        : fmt::format("one of {} bytes, and this rank receives {}", envelope.bytes, receiver.bytes);
  throw Error(ErrorCode::kFailedPrecondition,
              "a message from rank {} of the group is {}: pass tensors of the same shape and dtype on both sides", from,
              what);
}

void Messages::open(int64_t from, const Envelope& envelope) {
  auto& incoming = incoming_[static_cast<size_t>(from)];
  if (const auto receiver = find_receiver(from, envelope); receiver != receivers_.end()) {
    auto& message = *(*receiver)->message;
    check(from, envelope, message);
    message.peer = from;
    incoming.to = message.data;
    incoming.receiver = *receiver;
    receivers_.erase(receiver);
  } else {
    incoming.kept = kept_.insert(kept_.end(), Kept{.from = from, .envelope = envelope});
    incoming.kept->data.resize(static_cast<size_t>(envelope.bytes));
    incoming.to = incoming.kept->data.data();
  }
  incoming.envelope = envelope;
  incoming.num_moved = 0;
  incoming.is_open = true;
}

void Messages::close(Incoming& incoming, Transfers& ended) {
  incoming.is_open = false;
  if (incoming.receiver) {
    end(std::exchange(incoming.receiver, nullptr), ended);
  } else {
    incoming.kept->is_whole = true;
    if (incoming.kept->receiver) give(incoming.kept, ended);
  }
}

/// Messages that are kept have arrived before all that are in channels.
bool Messages::give_kept(Transfers& ended) {
  bool has_moved = false;
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const auto next = std::next(kept);
    const auto receiver = kept->receiver ? receivers_.end() : find_receiver(kept->from, kept->envelope);
    if (receiver != receivers_.end()) {
      check(kept->from, kept->envelope, *(*receiver)->message);
      (*receiver)->message->peer = kept->from;
      kept->receiver = *receiver;
      receivers_.erase(receiver);
      if (kept->is_whole) give(kept, ended);
      has_moved = true;
    }
    kept = next;
  }
  return has_moved;
}

void Messages::give(std::list<Kept>::iterator kept, Transfers& ended) {
  if (!kept->data.empty()) std::memcpy(kept->receiver->message->data, kept->data.data(), kept->data.size());
  end(kept->receiver, ended);
  kept_.erase(kept);
}

void Messages::end(const std::shared_ptr<Transfer>& transfer, Transfers& ended) {
  ended.push_back(transfer);
  --num_pending_;
}

std::deque<std::shared_ptr<Transfer>>::iterator Messages::find_receiver(int64_t from, const Envelope& envelope) {
  return std::ranges::find_if(receivers_, [&](const auto& transfer) {
    const auto& message = *transfer->message;
    return message.tag == envelope.tag && (message.peer == from || message.peer == kAnyRank);
  });
}

bool Messages::is_wanted(int64_t from) const {
  return from != rank_ && std::ranges::any_of(receivers_, [&](const auto& transfer) {
           return transfer->message->peer == from || transfer->message->peer == kAnyRank;
         });
}

std::vector<Messages::Pending> Messages::pending() const {
  const std::lock_guard lock(mutex_);
  return all_pending();
}

std::vector<Messages::Pending> Messages::all_pending() const {
  std::vector<Pending> all;
  const auto add = [&](const auto& transfer) { all.push_back({transfer, transfer->message->peer}); };
  for (const auto& queue : outgoing_) std::ranges::for_each(queue, add);
  std::ranges::for_each(receivers_, add);
  for (const auto& incoming : incoming_) {
    if (incoming.receiver) add(incoming.receiver);
  }
  for (const auto& kept : kept_) {
    if (kept.receiver) add(kept.receiver);
  }
  return all;
}

std::vector<Messages::Pending> Messages::take_all() {
  const std::lock_guard lock(mutex_);
  auto all = all_pending();
  for (auto& queue : outgoing_) queue.clear();
  receivers_.clear();
  incoming_ = std::vector<Incoming>(incoming_.size());
  kept_.clear();
  num_pending_ = 0;
  return all;
}

}  // namespace yoke::dist::shared
