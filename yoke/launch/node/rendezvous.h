// yoke/launch/node/rendezvous.h -- the endpoint of a job: the head listens there, and nodes that were started by
// themselves come to it. Whoever does not know the job's token is refused (handshake.h).
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/node/channel.h"
#include "yoke/launch/node/handshake.h"
#include "yoke/launch/node/nodes.h"

namespace yoke::launch {

/// The head's side, owned by its loop.
class Listener {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Arrival {
    std::unique_ptr<Channel> channel;
    std::string address;  ///< Where it comes from.
  };

  /// Errors  kUnavailable: the port is taken. kNotFound: the endpoint's name is none.
  Listener(const NodesSpec& nodes, std::string run_id);

  void add_polls(std::vector<pollfd>& polls) const;
  /// Nodes that have proved themselves, and what is to be said of those that could not.
  std::vector<Arrival> handle(const std::vector<pollfd>& polls, size_t first, std::vector<std::string>& complaints);
  std::optional<Time> next_time() const;
  uint16_t port() const { return port_; }

 private:
  struct Pending {
    UniqueFd socket;
    std::string address;
    std::unique_ptr<Handshake> handshake;
    std::string received;
    Time until;
  };
  void accept_some();
  /// Once for each address and reason.
  void complain(const std::string& address, const std::string& why, std::vector<std::string>& complaints);

  const NodesSpec& nodes_;
  std::string run_id_;
  UniqueFd socket_;
  uint16_t port_ = 0;
  Time rest_until_{};  ///< Nothing is accepted before.
  std::vector<Pending> pending_;
  std::set<std::string> said_;
};

/// Whether the endpoint is this machine's: one of its own addresses. Errors  kNotFound: the name is none.
bool is_own_address(const std::string& host);

/// Waits for that long while handling other events. Returns true if the attempt to join was cancelled.
using Wait = std::function<bool(std::chrono::milliseconds)>;

/// A node's side: waits until the head is there and has agreed.
/// nullptr: cancelled. `is_return`: a head that is not there any more is not waited for.
/// Errors  kTimeout: nobody came within the join timeout. kPermissionDenied: one of both does not know the token, or
/// what listens at the endpoint is no yoke.
std::unique_ptr<Channel> connect_to_head(const NodesSpec& nodes, const std::string& run_id, bool is_return,
                                         const Wait& wait, const std::function<void(const std::string&)>& say);

/// Whether a head that knows the job's token listens at the endpoint now. Blocks for seconds if what listens is silent.
bool has_head(const NodesSpec& nodes, const std::string& run_id);

}  // namespace yoke::launch
