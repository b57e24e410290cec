// yoke/launch/node/channel.h -- messages between the head of a job and its agents, over pipes of ssh or a TCP
// connection.
//
// A message is a JSON object in CBOR (RFC 8949; its texts may hold any bytes) after its length, four bytes, the lowest
// first. The empty object is a heartbeat.
#pragma once

#include <poll.h>

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/node/heartbeat.h"

namespace yoke::launch {

class Channel {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `in` and `out` may be the same descriptor twice (then `out` is a duplicate). `silence`: after which the other side
  /// is lost.
  /// `preamble`: what comes before it is skipped, such as the words of a login shell; empty: nothing does.
  Channel(UniqueFd in, UniqueFd out, std::chrono::milliseconds silence, std::string preamble = "");

  void set_silence(std::chrono::milliseconds silence) { heartbeat_.set_silence(silence); }
  void send(const nlohmann::json& message);

  void add_polls(std::vector<pollfd>& polls) const;  ///< Two entries.
  void handle(const std::vector<pollfd>& polls, size_t first);

  /// The next message that has arrived. Errors  kDataLoss: the other side says what is no message.
  std::optional<nlohmann::json> receive();

  /// Why nothing more will come; nullopt while the connection lives. Messages that arrived before are still to be
  /// received.
  const std::optional<std::string>& end() const { return end_; }
  Time last_heard() const { return heartbeat_.last_heard(); }
  bool was_silent() const { return was_silent_; }  ///< And that is why: a cut rather than an end.
  std::optional<Time> next_time() const;           ///< When handle() is to be called although nothing happened.
  size_t num_unsent_bytes() const { return unsent_.size() - sent_; }

  /// Sends what is left, for no longer than `patience`.
  void flush(std::chrono::milliseconds patience);

 private:
  void read_some();
  void write_some();
  bool skip_preamble();
  void close(std::string why);

  UniqueFd in_, out_;
  Heartbeat heartbeat_;
  std::string preamble_;  ///< Not yet seen.
  std::string received_;
  size_t taken_ = 0;
  std::string unsent_;
  size_t sent_ = 0;
  std::optional<std::string> end_;
  bool was_silent_ = false;
};

}  // namespace yoke::launch
