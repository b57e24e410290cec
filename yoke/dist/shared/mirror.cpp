#include "yoke/dist/shared/mirror.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::dist::shared {
namespace {

using std::chrono::milliseconds;

/// The thread says so often that it runs, and is taken for stopped after so long without a word.
constexpr milliseconds kBeat(500);
constexpr milliseconds kSilence(3000);
/// A connection over which nothing passes is probed every two seconds (links.cpp). It gives no answer if nothing has
/// come for so long, and that to at least two probes or repetitions of what was sent.
constexpr milliseconds kNoAnswer(6000);
constexpr int kFewestUnanswered = 2;
/// For what is not known to be the rest of a piece yet. Small, because that rest is read into its place at once.
constexpr size_t kBufferBytes = 4 << 10;
/// One connection is read so often before the others have their turn.
constexpr int kMostReads = 32;
/// A message of the kernel has at most so many parts (IOV_MAX is at least that).
constexpr size_t kMostParts = 512;

uint64_t now_ms() {
  return static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(Clock::now().time_since_epoch()).count());
}

}  // namespace

Mirror::Mirror(std::shared_ptr<Segment> segment, Links links, const Options& options)
    : segment_(std::move(segment)),
      rank_(options.rank),
      ring_(options.ring),
      wakeup_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wakeup_) throw system_error(errno, "making an eventfd for the connections of a rank");
  for (auto& link : links.out) {
    auto& outgoing = *outgoing_.emplace_back(std::make_unique<Outgoing>());
    outgoing.socket = std::move(link.socket);
    outgoing.ranks = std::move(link.ranks);
  }
  for (auto& link : links.in) {
    incoming_.push_back({.socket = std::move(link.socket), .from = link.from, .buffer = {}});
    incoming_.back().buffer.resize(kBufferBytes);
  }
  segment_->state(rank_).carried_at = now_ms();
  thread_ = std::thread([this] { run(); });
}

Mirror::~Mirror() { close(milliseconds(0)); }

void Mirror::wake() const {
  const uint64_t one = 1;
  static_cast<void>(!write(wakeup_.value(), &one, sizeof one));
}

bool Mirror::is_stopped(int64_t carrier) const {
  const uint64_t at = segment_->state(carrier).carried_at;
  return carrier != rank_ && now_ms() > at + static_cast<uint64_t>(kSilence.count());
}

/// A host whose buffers are full answers to probes, so it is not meant.
bool Mirror::gives_no_answer(int64_t rank) const {
  return std::ranges::any_of(outgoing_, [&](const auto& outgoing) {
    if (std::ranges::find(outgoing->ranks, rank) == outgoing->ranks.end()) return false;
    const std::lock_guard lock(outgoing->mutex);
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(outgoing->socket.value(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
    const milliseconds silence(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv));
    return silence >= kNoAnswer && info.tcpi_retransmits + info.tcpi_probes >= kFewestUnanswered;
  });
}

void Mirror::close(milliseconds patience) {
  const auto until = Clock::now() + patience;
  while (!are_queues_empty() && Clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
  is_stopping_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
  for (const auto& outgoing : outgoing_) {
    const std::lock_guard lock(outgoing->mutex);
    outgoing->is_closed = true;
    outgoing->socket.reset();
  }
  incoming_.clear();
}

bool Mirror::are_queues_empty() {
  return std::ranges::all_of(outgoing_, [](const auto& outgoing) {
    const std::lock_guard lock(outgoing->mutex);
    return outgoing->is_closed || outgoing->queue.empty();
  });
}

// ---- What this rank publishes ---------------------------------------------------------------------------------------

void Mirror::publish(const News& news, const Pieces& pieces) {
  for (const auto& outgoing : outgoing_) send(*outgoing, news, pieces);
}

void Mirror::publish(const News& news, const PiecesFor& pieces_for) {
  for (const auto& outgoing : outgoing_) {
    if (const auto pieces = pieces_for(outgoing->ranks)) send(*outgoing, news, *pieces);
  }
}

void Mirror::publish_to(int64_t rank, const News& news, const Pieces& pieces) {
  for (const auto& outgoing : outgoing_) {
    if (std::ranges::find(outgoing->ranks, rank) != outgoing->ranks.end()) send(*outgoing, news, pieces);
  }
}

void Mirror::send(Outgoing& outgoing, const News& news, const Pieces& pieces) {
  std::vector<Frame> frames;
  frames.reserve(pieces.size() + 1);
  std::vector<iovec> parts;
  const auto add = [&](const void* memory, size_t size) { parts.push_back({const_cast<void*>(memory), size}); };
  for (const auto& piece : pieces) {
    if (piece.data.empty()) continue;
    frames.push_back({.offset = segment_->offset_of(piece.place), .bytes = piece.data.size()});
    add(&frames.back(), sizeof(Frame));
    add(piece.data.data(), piece.data.size());
  }
  frames.push_back({.offset = segment_->offset_of(&news.word), .value = news.value});
  add(&frames.back(), sizeof(Frame));

  const std::lock_guard lock(outgoing.mutex);
  if (outgoing.is_closed) return;
  const bool was_empty = outgoing.queue.empty();
  size_t sent = 0, first = 0;
  if (was_empty) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = std::min(parts.size(), kMostParts);
    const auto count = sendmsg(outgoing.socket.value(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) {
      outgoing.is_closed = true;  // the end of the rank at the other end is noticed by what comes from there
      return;
    }
    sent = static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  for (; first < parts.size() && sent >= parts[first].iov_len; ++first) sent -= parts[first].iov_len;
  if (first == parts.size()) return;
  for (; first < parts.size(); ++first, sent = 0) {
    const auto* const memory = static_cast<const std::byte*>(parts[first].iov_base);
    outgoing.queue.insert(outgoing.queue.end(), memory + sent, memory + parts[first].iov_len);
  }
  if (was_empty) wake();
}

/// REQUIRES: the mutex of `outgoing` is held.
void Mirror::send_queue(Outgoing& outgoing) {
  auto& queue = outgoing.queue;
  while (outgoing.num_sent < queue.size()) {
    const auto count = ::send(outgoing.socket.value(), queue.data() + outgoing.num_sent,
                              queue.size() - outgoing.num_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) {
      outgoing.is_closed = true;
      outgoing.num_sent = queue.size();
      break;
    }
    outgoing.num_sent += static_cast<size_t>(count);
  }
  if (outgoing.num_sent < queue.size() && outgoing.num_sent < queue.size() / 2) return;
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(outgoing.num_sent));
  outgoing.num_sent = 0;
}

// ---- What others publish --------------------------------------------------------------------------------------------

void Mirror::run() {
  while (!is_stopping_) {
    segment_->state(rank_).carried_at = now_ms();
    std::vector<pollfd> polled = {{wakeup_.value(), POLLIN, 0}};
    for (const auto& incoming : incoming_) polled.push_back({incoming.socket.value(), POLLIN, 0});
    const size_t first_outgoing = polled.size();
    for (const auto& outgoing : outgoing_) {
      const std::lock_guard lock(outgoing->mutex);
      const bool waits = !outgoing->is_closed && !outgoing->queue.empty();
      polled.push_back({waits ? outgoing->socket.value() : -1, POLLOUT, 0});
    }
    if (poll(polled.data(), polled.size(), static_cast<int>(kBeat.count())) <= 0) continue;
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      static_cast<void>(!::read(wakeup_.value(), &count, sizeof count));
    }
    for (size_t i = 0; i < outgoing_.size(); ++i) {
      if (polled[first_outgoing + i].revents == 0) continue;
      const std::lock_guard lock(outgoing_[i]->mutex);
      send_queue(*outgoing_[i]);
    }
    bool has_news = false;
    for (size_t i = 0; i < incoming_.size(); ++i) {
      auto& incoming = incoming_[i];
      if (polled[1 + i].revents == 0) continue;
      const auto is_cut_off = read(incoming, has_news);
      if (is_cut_off == 0) continue;
      incoming.socket.reset();  // poll() passes over it
      segment_->state(incoming.from).is_cut_off = is_cut_off;
      has_news = true;
    }
    if (has_news) ring_();
  }
}

/// The kernel of the other host closes the connections of a process that has ended, or resets them. Other errors come
/// from a network or a host that gives no answer.
uint64_t Mirror::read(Incoming& incoming, bool& has_news) {
  for (int i = 0; i < kMostReads; ++i) {
    // Of a piece that has begun no byte is in the buffer.
    const auto space = std::span(incoming.buffer).subspan(incoming.num_kept);
    const auto wanted = incoming.num_left + space.size();
    iovec parts[] = {{incoming.to, incoming.num_left}, {space.data(), space.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = std::size(parts);
    const auto count = recvmsg(incoming.socket.value(), &message, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return 0;
    if (count < 0 && errno != ECONNRESET) return kSilent;
    if (count <= 0) return kClosed;
    const auto size = static_cast<size_t>(count), direct = std::min(size, incoming.num_left);
    incoming.to += direct;
    incoming.num_left -= direct;
    const auto rest = std::span(incoming.buffer).first(incoming.num_kept + size - direct);
    if (!take(incoming, rest, has_news)) return kClosed;
    if (size < wanted) return 0;
  }
  return 0;
}

/// `bytes` begins the buffer, in which the bytes stay that are no whole Frame. Returns false if they make no sense.
bool Mirror::take(Incoming& incoming, std::span<const std::byte> bytes, bool& has_news) {
  while (!bytes.empty()) {
    if (incoming.num_left > 0) {
      const size_t size = std::min(incoming.num_left, bytes.size());
      std::memcpy(incoming.to, bytes.data(), size);
      incoming.to += size;
      incoming.num_left -= size;
      bytes = bytes.subspan(size);
      continue;
    }
    if (bytes.size() < sizeof(Frame)) break;
    Frame frame;
    std::memcpy(&frame, bytes.data(), sizeof frame);
    bytes = bytes.subspan(sizeof frame);
    auto* const place = segment_->place_at(frame.offset, std::max<uint64_t>(frame.bytes, sizeof frame.value));
    if (place == nullptr || (frame.bytes == 0 && frame.offset % sizeof frame.value != 0)) return false;
    if (frame.bytes == 0) {
      reinterpret_cast<std::atomic<uint64_t>*>(place)->store(frame.value, std::memory_order_seq_cst);
      has_news = true;
    } else {
      incoming.to = place;
      incoming.num_left = frame.bytes;
    }
  }
  incoming.num_kept = bytes.size();
  if (!bytes.empty()) std::memmove(incoming.buffer.data(), bytes.data(), bytes.size());
  return true;
}

}  // namespace yoke::dist::shared
