// yoke/launch/node/rendezvous.h -- the endpoint of a job: the head listens there, and nodes that it did not start
// connect to it. A node that does not know the job's token is refused (handshake.h).
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/node/channel.h"
#include "yoke/launch/node/handshake.h"
#include "yoke/launch/node/nodes.h"

namespace yoke::launch {

/// The head's side: accepts the nodes of the job.
class Listener : public EventSource {
 public:
  using Time = LoopTime;
  struct Arrival {
    UniqueFd socket;
    std::string address;  ///< The address from which the node connects.
  };

  /// Errors  kUnavailable if the port is taken.
  Listener(const NodesSpec& nodes, std::string run_id);

  void add_to(WaitSet& waits) override;
  void handle(LoopTime now) override;
  /// Returns the nodes that have proved, since the last call, that they know the token.
  std::vector<Arrival> take_arrivals() { return std::exchange(arrivals_, {}); }
  /// Returns the messages for the user about connections that were refused since the last call.
  std::vector<std::string> take_complaints() { return std::exchange(complaints_, {}); }
  uint16_t port() const { return port_; }
  /// Whether one of the last greetings had these random bytes.
  bool has_greeted_with(const std::string& random) const {
    return std::ranges::find(greetings_, random) != greetings_.end();
  }

 private:
  struct Pending {
    UniqueFd socket;
    bool is_ready = false;
    std::string address;
    std::unique_ptr<Handshake> handshake;
    std::string received;
    Time until;
  };
  void talk_to(Pending& one, LoopTime now);
  void accept_some(LoopTime now);
  /// Adds a message, but only once for each address and reason.
  void complain(const std::string& address, const std::string& why);

  const NodesSpec& nodes_;
  std::string run_id_;
  UniqueFd socket_;
  uint16_t port_ = 0;
  bool is_called_ = false;          ///< Whether a connection waits to be accepted.
  std::optional<Time> rest_until_;  ///< Nothing is accepted before this time.
  std::vector<Arrival> arrivals_;
  std::vector<std::string> complaints_;
  std::vector<Pending> pending_;
  std::deque<std::string> greetings_;  ///< The random bytes of the last ones.
  std::set<std::string> said_;
};

/// A channel on a connected socket.
std::unique_ptr<Channel> to_channel(UniqueFd socket, std::chrono::milliseconds silence);

/// Whether `host` is one of this machine's own addresses. Errors  kNotFound if there is no such name.
bool is_own_address(const std::string& host);

/// Waits for this long while handling other events. Returns true if the attempt to join was cancelled.
using Wait = std::function<bool(std::chrono::milliseconds)>;

/// Waits until a head has accepted this node. Returns nullptr if cancelled. `is_return`: this node was in the job
/// before, so it does not wait for a head that has ended.
/// Errors  kTimeout: no head was found within the join timeout. kPermissionDenied: the head or this node does not know
/// the token, or a different program listens at the endpoint. kUnavailable: this node was in the job before, and the
/// head has ended.
std::unique_ptr<Channel> connect_to_head(const NodesSpec& nodes, const std::string& run_id, bool is_return,
                                         const Wait& wait, const std::function<void(const std::string&)>& say);

/// Whether a head that knows the job's token listens at the endpoint. Takes seconds if the listener is silent.
bool has_head(const NodesSpec& nodes, const std::string& run_id);

}  // namespace yoke::launch
