// yoke/launch/node/channel.h -- messages between the head of a job and its agents, over ssh's pipes or a TCP
// connection.
//
// A message is its length in four bytes (little-endian), then a JSON object in CBOR (RFC 8949; texts may hold any
// bytes). The empty object is a heartbeat. {"given_up": MILLISECONDS} is the last message to a peer that was silent for
// so long: one that was stopped, and not cut off, reads it when it goes on.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/base/file.h"
#include "yoke/launch/loop/event_loop.h"
#include "yoke/launch/node/heartbeat.h"

namespace yoke::launch {

class Channel : public EventSource {
 public:
  using Time = LoopTime;
  static constexpr std::chrono::seconds kStartPatience{60};

  /// `in` and `out` may be one connection (then `out` is a duplicate of the descriptor). `silence`: the peer counts as
  /// lost if it sends nothing for this long. `preamble`: everything up to this text is skipped, such as the output of a
  /// login shell; if it is empty, nothing is skipped. Login shells can be slow: before the preamble has arrived, the
  /// peer may be silent for kStartPatience. Nothing is sent before, because a shell that asks would take it for an
  /// answer.
  Channel(UniqueFd in, UniqueFd out, std::chrono::milliseconds silence, std::string preamble = "");

  void set_silence(std::chrono::milliseconds silence);
  std::chrono::milliseconds silence() const { return silence_; }
  void send(const nlohmann::json& message);

  void add_to(WaitSet& waits) override;
  void handle(LoopTime now) override;

  /// Returns the next message that has arrived. Errors  kDataLoss if the peer sent something that is not a message.
  std::optional<nlohmann::json> receive();

  /// Why the connection has ended; nullopt while it is open. Messages that arrived before can still be received.
  const std::optional<std::string>& end() const { return end_; }
  std::string_view text_before() const;  ///< What has arrived instead of the preamble; empty after it.
  Time last_heard() const { return heartbeat_.last_heard(); }
  /// Whether the channel ended because of silence. The peer may then be alive, but cut off from the network.
  bool was_silent() const { return was_silent_; }
  /// The channel ended because the peer has given this side up, from which it had received nothing for so long.
  std::optional<std::chrono::milliseconds> given_up_after() const { return given_up_after_; }
  size_t num_unsent_bytes() const { return unsent_.size() - sent_; }

  /// Sends the unsent messages, for at most `patience`.
  void flush(std::chrono::milliseconds patience);

 private:
  void read_some(LoopTime now);
  void write_some();
  bool skip_preamble();
  void close(std::string why);

  UniqueFd in_, out_;
  std::chrono::milliseconds silence_;
  Heartbeat heartbeat_;
  bool can_read_ = false, can_write_ = false;
  std::string preamble_;  ///< Empty after it has arrived.
  std::string received_;
  size_t taken_ = 0;
  std::string unsent_;
  size_t sent_ = 0;
  std::optional<std::string> end_;
  bool was_silent_ = false;
  std::optional<std::chrono::milliseconds> given_up_after_;
};

/// Waits for the first message of the head. Errors  kUnavailable: the connection has ended before; as receive().
nlohmann::json receive_request(Channel& channel);

}  // namespace yoke::launch
