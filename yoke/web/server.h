// yoke/web/server.h -- /metrics and /devices.json over HTTP.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "yoke/device/device.h"
#include "yoke/web/address.h"

namespace yoke::web {

struct ServerOptions {
  Address address;
  std::chrono::milliseconds max_age = std::chrono::seconds(1);             ///< An older sample is taken anew.
  std::chrono::milliseconds request_deadline = std::chrono::seconds(2);    ///< For a client to send all of a request.
  std::chrono::milliseconds response_deadline = std::chrono::seconds(10);  ///< For a client to take all of a response.
  size_t max_connections = 1024;  ///< Less where the limit of open files is low.
};

/// A client cannot hold a connection for longer than the deadlines, and when all are taken, the one that has been
/// sending its request for the longest loses its own: slow clients do not keep others out. One request a connection;
/// one of more than 8 KiB is refused.
class Server {
 public:
  /// Listens. `sample` is called on a thread of its own, once for all requests that wait at that time.
  /// Errors  kUnavailable: the port is taken; kPermissionDenied, kInvalidArgument: it cannot be ours.
  Server(const ServerOptions& options, std::function<device::Snapshot()> sample);
  ~Server();

  std::string url() const;  ///< Of /metrics, with the port that was found for 0.

  void run();   ///< Until stop(), SIGINT or SIGTERM.
  void stop();  ///< From any thread.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::web
