// yoke/web/server.h -- serves the page, JSON and /metrics over HTTP.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "yoke/web/address.h"
#include "yoke/web/page.h"

namespace yoke::web {

struct ServerOptions {
  Address address;
  std::chrono::milliseconds max_age = std::chrono::seconds(1);           ///< An older sample is replaced by a new one.
  std::chrono::milliseconds request_deadline = std::chrono::seconds(2);  ///< For a client to send all of a request.
  std::chrono::milliseconds response_deadline = std::chrono::seconds(10);  ///< For a client to read a whole response.
  std::chrono::milliseconds history_interval = std::chrono::seconds(10);   ///< A sample is taken at least so often.
  size_t max_connections = 1024;  ///< The maximum; lower if the limit of open files is low.
};

/// No client can hold a connection for longer than the deadlines. If all connections are taken, the client that has
/// taken longest to send its request loses its connection, so that slow clients do not keep others out. A connection
/// serves one request. A request of more than 8 KiB is refused.
class Server {
 public:
  /// Listens. `sample` is called on a separate thread, once for all requests that are waiting.
  /// Errors  kUnavailable if the port is taken; kPermissionDenied or kInvalidArgument if the address cannot be used.
  Server(const ServerOptions& options, std::function<Machine()> sample);
  ~Server();

  std::string url(std::string_view path) const;  ///< With the chosen port if the address has port 0.

  void run();   ///< Serves until stop(), SIGINT or SIGTERM.
  void stop();  ///< May be called from any thread.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::web
