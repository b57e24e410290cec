// yoke/launch/node/handshake.h -- the first messages between an agent and the head that it connects to by TCP. Each
// proves that it knows the job's token, without sending the token, and refuses a peer that does not know it: another
// program on the network, or another user's program that has taken the port. Later messages are neither encrypted nor
// signed, and neither is the traffic of the ranks.
//
//   head   "yoke/1 head\n"   32 random bytes
//   agent  "yoke/1 agent\n"  32 random bytes, then the keyed hash of all of this (from "yoke/1 head" on) and "agent"
//   head   "y" and the keyed hash of the same texts and random bytes and "head", or "n" if the agent's hash is wrong
//
// The key is a hash of the token and the job's id; the keyed hash is HMAC-SHA-512-256 (libsodium's crypto_auth).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace yoke::launch {

inline constexpr std::string_view kHeadGreeting = "yoke/1 head\n";
inline constexpr size_t kRandomBytes = 32;

/// What a node asks a silent listener, to find out whether it is torch's TCPStore. The store answers only its own
/// protocol (TCPStoreBackend.hpp): VALIDATE (0) with a magic number, then PING (13) with a number that it sends back,
/// kAnswerOfStore. A head that was stopped reads it when it goes on.
inline constexpr std::string_view kAnswerOfStore = "yoke";
inline constexpr std::string_view kQuestionToStore{"\0\xce\xf7\x85\x3c\x0dyoke", 10};

/// One side of the handshake. The caller passes the bytes that arrive to the Handshake, and sends its answers to the
/// peer. Pure except for the random bytes.
class Handshake {
 public:
  enum class Side { kHead, kAgent };

  Handshake(Side side, const std::string& token, const std::string& run_id);

  enum class State { kTalking, kDone, kRefused };
  /// Consumes bytes from the front of `received`, and appends the answer to `to_send`.
  void feed(std::string& received, std::string& to_send);
  /// Sends an agent's greeting before the head's greeting has arrived. Most programs other than yoke answer it, and the
  /// answer shows what they are.
  void greet_first(std::string& to_send);
  State state() const { return state_; }
  const std::string& own_random() const { return own_; }  ///< The random bytes of this side's greeting.
  const std::string& reason() const { return reason_; }   ///< Why the peer was refused; empty if it was not.
  bool is_stranger() const { return is_stranger_; }       ///< Whether the peer was refused because it is not yoke.

 private:
  void feed_head(std::string& received, std::string& to_send);
  void feed_agent(std::string& received, std::string& to_send);
  bool take_greeting(std::string& received, std::string_view text);
  void refuse(std::string why);
  std::string proof(Side side) const;

  const Side side_;
  std::string key_;
  std::string own_, other_;  ///< Random bytes.
  bool has_greeted_ = false;
  bool is_stranger_ = false;
  State state_ = State::kTalking;
  std::string reason_;
};

}  // namespace yoke::launch
