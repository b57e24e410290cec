#include "yoke/launch/node/channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"

namespace yoke::launch {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr const char* kGivenUp = "given_up";
constexpr size_t kLengthBytes = 4;
/// The largest message is a rank's environment, which the kernel limits to 6 MB.
constexpr size_t kMaxMessageBytes = 64 << 20;
constexpr size_t kChannelReadBytes = 1 << 18;

}  // namespace

Channel::Channel(UniqueFd in, UniqueFd out, std::chrono::milliseconds silence, std::string preamble)
    : in_(std::move(in)),
      out_(std::move(out)),
      silence_(silence),
      heartbeat_(Clock::now(),
                 preamble.empty() ? silence : std::max<std::chrono::milliseconds>(silence, kStartPatience)),
      preamble_(std::move(preamble)) {
  for (const auto* fd : {&in_, &out_}) fcntl(fd->value(), F_SETFL, fcntl(fd->value(), F_GETFL) | O_NONBLOCK);
}

void Channel::set_silence(std::chrono::milliseconds silence) {
  silence_ = silence;
  if (preamble_.empty()) heartbeat_.set_silence(silence);
}

void Channel::send(const json& message) {
  if (end_) return;
  std::string text;
  json::to_cbor(message, text);
  for (size_t i = 0; i < kLengthBytes; ++i) unsent_.push_back(static_cast<char>(text.size() >> (8 * i)));
  unsent_ += text;
  heartbeat_.on_said(Clock::now());
  write_some();
}

void Channel::add_to(WaitSet& waits) {
  waits.read(in_.value(), can_read_);
  waits.write(num_unsent_bytes() > 0 && preamble_.empty() ? out_.value() : -1, can_write_);
  if (end_) return;
  waits.until(heartbeat_.next_time(num_unsent_bytes() == 0));
  waits.until(heartbeat_.next_turn());
}

void Channel::handle(LoopTime now) {
  if (end_) return;
  if (can_read_) read_some(now);
  if (!end_ && can_write_) write_some();
  if (end_) return;
  // Bytes that have already arrived count: this process may have been stopped while the peer sent them.
  if (heartbeat_.is_lost(now)) read_some(now);
  heartbeat_.on_turn(now);
  if (!end_ && heartbeat_.is_lost(now)) {
    was_silent_ = true;
    send({{kGivenUp, heartbeat_.silence().count()}});
    close(fmt::format("it sent nothing for {}", format_duration(heartbeat_.silence())));
  } else if (heartbeat_.has_to_say(now) && num_unsent_bytes() == 0) {
    send(json::object());
  }
}

void Channel::read_some(LoopTime now) {
  char buffer[kChannelReadBytes];
  const auto count = ::read(in_.value(), buffer, sizeof buffer);
  if (count > 0) {
    heartbeat_.on_heard(now);
    received_.append(buffer, static_cast<size_t>(count));
    skip_preamble();
  } else if (count == 0 || errno == ECONNRESET) {
    // If a killed process had unread data, its connection is reset; otherwise it is closed.
    close("its connection was closed");
  } else if (errno != EAGAIN && errno != EINTR) {
    close(fmt::format("its connection failed: {}", std::generic_category().message(errno)));
  }
}

void Channel::write_some() {
  if (!preamble_.empty()) return;
  while (num_unsent_bytes() > 0) {
    const auto count = ::write(out_.value(), unsent_.data() + sent_, num_unsent_bytes());
    if (count < 0) {
      // A failed write does not end the channel, because what the peer sent before can still be read.
      if (errno == EAGAIN || errno == EINTR) break;
      sent_ = unsent_.size();
    } else {
      sent_ += static_cast<size_t>(count);
    }
  }
  if (sent_ == unsent_.size()) {
    unsent_.clear();
    sent_ = 0;
  } else if (sent_ > kChannelReadBytes) {
    unsent_.erase(0, sent_);
    sent_ = 0;
  }
}

bool Channel::skip_preamble() {
  if (preamble_.empty()) return true;
  const auto at = received_.find(preamble_);
  if (at == received_.npos) return false;
  received_.erase(0, at + preamble_.size());
  preamble_.clear();
  heartbeat_.set_silence(silence_);
  return true;
}

std::string_view Channel::text_before() const { return preamble_.empty() ? std::string_view() : received_; }

std::optional<json> Channel::receive() {
  while (skip_preamble()) {
    const auto rest = std::string_view(received_).substr(taken_);
    if (rest.size() < kLengthBytes) break;
    size_t length = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) length |= size_t{static_cast<unsigned char>(rest[i])} << (8 * i);
    if (length > kMaxMessageBytes) {
      close("it does not use yoke's protocol");
      throw Error(ErrorCode::kDataLoss, "it sent bytes that are not a message of yoke: '{}'",
                  printable(rest.substr(0, 60)));
    }
    if (rest.size() - kLengthBytes < length) break;
    taken_ += kLengthBytes + length;
    auto message = json::from_cbor(rest.substr(kLengthBytes, length), true, false);
    if (!message.is_object()) {
      close("it does not use yoke's protocol");
      throw Error(ErrorCode::kDataLoss, "it sent bytes that are not a message of yoke");
    }
    if (const auto given_up = message.find(kGivenUp); given_up != message.end()) {
      given_up_after_ = milliseconds(given_up->get<int64_t>());
      close(fmt::format("it had received nothing from here for {}, and gave this host up",
                        format_duration(*given_up_after_)));
      break;
    }
    if (!message.empty()) return message;
  }
  received_.erase(0, taken_);
  taken_ = 0;
  if (received_.size() > kMaxMessageBytes + kChannelReadBytes)
    close("it sent data that does not contain a message of yoke");
  return std::nullopt;
}

void Channel::flush(std::chrono::milliseconds patience) {
  if (!preamble_.empty()) return;
  const auto until = Clock::now() + patience;
  while (!end_ && num_unsent_bytes() > 0 && Clock::now() < until) {
    pollfd one{out_.value(), POLLOUT, 0};
    poll(&one, 1, 50);
    if ((one.revents & (POLLERR | POLLHUP)) != 0) return;
    write_some();
  }
}

void Channel::close(std::string why) {
  if (!end_) end_ = std::move(why);
  in_.reset();
  out_.reset();
}

json receive_request(Channel& channel) {
  EventLoop loop;
  EventSource* const source = &channel;
  while (true) {
    loop.turn({&source, 1}, std::chrono::milliseconds(500));
    if (auto message = channel.receive()) return *std::move(message);
    if (channel.end()) throw Error(ErrorCode::kUnavailable, "lost the head node: {}", *channel.end());
  }
}

}  // namespace yoke::launch
