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
  std::chrono::milliseconds max_age = std::chrono::seconds(1);  ///< An older sample is replaced by a new one.
  std::chrono::milliseconds request_deadline =
      std::chrono::seconds(2);  ///< The time for a client to send its whole request.
  std::chrono::milliseconds response_deadline =
      std::chrono::seconds(10);   ///< The time for a client to read its whole response.
  size_t max_connections = 1024;  ///< Fewer if the limit of open files is low.
};

/// A client cannot hold a connection for longer than the deadlines. When all connections are taken, the client that has
/// been sending its request for the longest time loses its connection, so slow clients do not keep others out. A
/// connection serves one request; a request of more than 8 KiB is refused.
class Server {
 public:
  /// Listens. `sample` is called on a separate thread, once for all requests that are waiting.
  /// Errors  kUnavailable: the port is taken; kPermissionDenied, kInvalidArgument: the address cannot be used.
  Server(const ServerOptions& options, std::function<device::Snapshot()> sample);
  ~Server();

  std::string url() const;  ///< The URL of /metrics, with the chosen port if the address has port 0.

  void run();   ///< Serves until stop(), SIGINT or SIGTERM.
  void stop();  ///< May be called from any thread.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::web
