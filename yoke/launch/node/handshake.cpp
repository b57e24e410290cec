#include "yoke/launch/node/handshake.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::launch {
namespace {

constexpr std::string_view kAgentGreeting = "yoke/1 agent\n";

const unsigned char* bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

}  // namespace

Handshake::Handshake(Side side, const std::string& token, const std::string& run_id)
    : side_(side), key_(crypto_auth_KEYBYTES, '\0'), own_(kRandomBytes, '\0') {
  if (sodium_init() < 0)
    throw Error(ErrorCode::kUnavailable, "libsodium finds no source of random numbers on this machine");
  randombytes_buf(own_.data(), own_.size());
  const auto text = fmt::format("{}:{}{}", token.size(), token, run_id);
  crypto_generichash(bytes(key_), key_.size(), bytes(text), text.size(), nullptr, 0);
}

void Handshake::feed(std::string& received, std::string& to_send) {
  if (state_ != State::kTalking) return;
  if (side_ == Side::kHead) {
    feed_head(received, to_send);
  } else {
    feed_agent(received, to_send);
  }
}

void Handshake::feed_head(std::string& received, std::string& to_send) {
  if (!has_greeted_) {
    to_send += fmt::format("{}{}", kHeadGreeting, own_);
    has_greeted_ = true;
  }
  if (other_.empty() && !take_greeting(received, kAgentGreeting)) return;
  if (received.size() < crypto_auth_BYTES) return;
  const auto claimed = received.substr(0, crypto_auth_BYTES);
  received.erase(0, crypto_auth_BYTES);
  const auto expected = proof(Side::kAgent);
  if (sodium_memcmp(claimed.data(), expected.data(), expected.size()) != 0) {
    to_send += 'n';
    return refuse("its --rdzv-id or its token differs from the job's");
  }
  to_send += 'y' + proof(Side::kHead);
  state_ = State::kDone;
}

void Handshake::feed_agent(std::string& received, std::string& to_send) {
  if (other_.empty()) {
    if (!take_greeting(received, kHeadGreeting)) return;
    greet_first(to_send);
    to_send += proof(Side::kAgent);
  }
  if (received.empty()) return;
  if (received.front() == 'n')
    return refuse("the head node refuses this node, because its --rdzv-id or its token differs from the job's");
  if (received.front() != 'y') return refuse("what listens there does not answer as yoke does");
  if (received.size() < 1 + crypto_auth_BYTES) return;
  const auto claimed = received.substr(1, crypto_auth_BYTES);
  received.erase(0, 1 + crypto_auth_BYTES);
  const auto expected = proof(Side::kHead);
  if (sodium_memcmp(claimed.data(), expected.data(), expected.size()) != 0) {
    return refuse("what listens there does not know the job's token, so it is not yoke, or it is another user's yoke");
  }
  state_ = State::kDone;
}

void Handshake::greet_first(std::string& to_send) {
  if (!has_greeted_) to_send += fmt::format("{}{}", kAgentGreeting, own_);
  has_greeted_ = true;
}

/// Returns false if the greeting is not complete yet.
bool Handshake::take_greeting(std::string& received, std::string_view text) {
  const auto length = std::min(received.size(), text.size());
  if (received.compare(0, length, text.substr(0, length)) != 0) {
    is_stranger_ = true;
    refuse(fmt::format("a program that is not yoke sent '{}'", printable(std::string_view(received).substr(0, 40))));
    return false;
  }
  if (received.size() < text.size() + kRandomBytes) return false;
  other_ = received.substr(text.size(), kRandomBytes);
  received.erase(0, text.size() + kRandomBytes);
  return true;
}

void Handshake::refuse(std::string why) {
  state_ = State::kRefused;
  reason_ = std::move(why);
}

std::string Handshake::proof(Side side) const {
  const auto& head = side_ == Side::kHead ? own_ : other_;
  const auto& agent = side_ == Side::kHead ? other_ : own_;
  const auto text =
      fmt::format("{}{}{}{}{}", kHeadGreeting, head, kAgentGreeting, agent, side == Side::kHead ? "head" : "agent");
  std::string result(crypto_auth_BYTES, '\0');
  crypto_auth(bytes(result), bytes(text), text.size(), bytes(key_));
  return result;
}

}  // namespace yoke::launch
