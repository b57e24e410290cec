#include "yoke/web/server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/span_body.hpp>
#include <boost/beast/http/write.hpp>
#include <csignal>
#include <list>
#include <optional>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/device/process/port_owner.h"
#include "yoke/web/samples.h"

namespace yoke::web {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using net::ip::tcp;
using std::chrono::milliseconds;

constexpr uint32_t kMaxRequestBytes = 8192;
constexpr milliseconds kFarewell{500};  ///< How long a client may take to close the connection after its response.
constexpr milliseconds kLeast{200};     ///< How long every client may take, even if connections are scarce.

class Connection;

/// Machine that all connections share. Only one thread uses it. (A second thread only takes samples.)
struct Desk {
  ServerOptions options;
  bool is_loopback = true;
  const std::string policy = content_security_policy();
  std::shared_ptr<Samples> samples;
  size_t num_connections = 0;
  std::list<Connection*> at_client;  ///< Connections that wait for their client, the oldest first.
  std::function<void()> on_free;     ///< Called when a connection has ended.
};

/// One request and its response. The pending operation keeps the object alive.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Desk& desk) : stream_(std::move(socket)), desk_(desk) { ++desk_.num_connections; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    leave_client();
    --desk_.num_connections;
    if (desk_.on_free) desk_.on_free();
  }

  void start() {
    parser_.header_limit(kMaxRequestBytes);
    parser_.body_limit(0);
    await_client(desk_.options.request_deadline);
    http::async_read_header(stream_, buffer_, parser_, [self = shared_from_this()](error_code error, size_t) {
      self->leave_client();
      self->on_request(error);
    });
  }

  void abort() { stream_.close(); }

  bool has_waited(milliseconds least) const { return std::chrono::steady_clock::now() - since_ >= least; }

 private:
  void await_client(milliseconds limit) {
    stream_.expires_after(limit);
    since_ = std::chrono::steady_clock::now();
    position_ = desk_.at_client.insert(desk_.at_client.end(), this);
  }
  void leave_client() {
    if (position_) desk_.at_client.erase(*std::exchange(position_, std::nullopt));
  }

  void on_request(error_code error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return refuse(http::status::request_header_fields_too_large, "the request is too long");
    }
    if (error == http::error::body_limit) return refuse(http::status::payload_too_large, "requests have no body here");
    if (error.category() == http::make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      return refuse(http::status::bad_request, "this is not HTTP");
    }
    if (error) return;  // the client has disconnected or is too slow
    const auto& request = parser_.get();
    if (request.count(http::field::host) > 1) return refuse(http::status::bad_request, "give one Host alone");
    const std::string host(request[http::field::host]);
    if (desk_.is_loopback && !is_local_host_header(host)) {
      return refuse(http::status::forbidden, "call this server localhost, or by its address in numbers");
    }
    is_head_ = request.method() == http::verb::head;
    if (!is_head_ && request.method() != http::verb::get) {
      response_.set(http::field::allow, "GET, HEAD");
      return refuse(http::status::method_not_allowed, "GET only");
    }
    const std::string target(request.target());
    const auto path = target.substr(0, target.find('?'));
    const auto resource = find_resource(path);
    if (!resource) return refuse(http::status::not_found, "there is nothing here; / is a page with links to the rest");
    stream_.expires_never();  // sampling has its own deadline
    desk_.samples->get([self = shared_from_this(), resource = *resource](Sample* sample) {
      if (sample == nullptr) return self->refuse(http::status::service_unavailable, "the devices could not be read");
      self->respond(http::status::ok, kResources[resource].type,
                    sample->text(resource, self->desk_.samples->history()));
    });
  }

  void refuse(http::status status, std::string_view why) {
    respond(status, "text/plain; charset=utf-8", std::make_shared<std::string>(fmt::format("{}\n", why)));
  }

  void respond(http::status status, std::string_view type, std::shared_ptr<const std::string> body) {
    body_ = std::move(body);
    response_.result(status);
    response_.version(11);
    response_.keep_alive(false);
    response_.set(http::field::content_type, {type.data(), type.size()});
    response_.set(http::field::cache_control, "no-store");
    // Other sites can neither read nor frame this, and a browser guesses no other type.
    response_.set("X-Content-Type-Options", "nosniff");
    response_.set("Cross-Origin-Resource-Policy", "same-origin");
    response_.set("Content-Security-Policy", desk_.policy);
    response_.content_length(body_->size());
    if (!is_head_) response_.body() = {body_->data(), body_->size()};
    stream_.expires_after(desk_.options.response_deadline);
    http::async_write(stream_, response_, [self = shared_from_this()](error_code error, size_t) {
      if (error) return;
      // Closing a connection with unread data would reset it, and the client might lose the end of the response.
      error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
      self->await_client(kFarewell);
      self->discard();
    });
  }

  void discard() {
    stream_.async_read_some(net::buffer(rest_), [self = shared_from_this()](error_code error, size_t) {
      if (!error) self->discard();
    });
  }

  beast::tcp_stream stream_;
  Desk& desk_;
  std::optional<std::list<Connection*>::iterator> position_;  ///< The connection's place in Desk::at_client.
  std::chrono::steady_clock::time_point since_;               ///< When it was added there. REQUIRES: position_.
  beast::flat_buffer buffer_{kMaxRequestBytes};
  http::request_parser<http::empty_body> parser_;
  http::response<http::span_body<const char>> response_;
  std::shared_ptr<const std::string> body_;
  bool is_head_ = false;
  std::array<char, 1024> rest_ = {};
};

/// Raises the limit of open files. Returns how many connections it allows, at most `wanted`.
size_t raise_file_limit(size_t wanted) {
  constexpr rlim_t kOthers = 64;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  if (limit.rlim_cur < wanted + kOthers && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted + kOthers);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  return static_cast<size_t>(std::clamp<rlim_t>(limit.rlim_cur, kOthers + 1, wanted + kOthers) - kOthers);
}

}  // namespace

struct Server::Impl {
  Impl(const ServerOptions& options, std::function<Machine()> sample)
      : acceptor(io), pause(io), next_sample(io), signals(io) {
    desk.options = options;
    desk.options.max_connections = raise_file_limit(options.max_connections);
    desk.is_loopback = options.address.is_loopback();
    desk.samples = std::make_shared<Samples>(std::move(sample), options.max_age,
                                             [this](std::function<void()> work) { net::post(io, std::move(work)); });
    desk.on_free = [this] {
      if (std::exchange(is_full, false)) accept();
    };
    listen();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    desk.on_free = nullptr;
    desk.samples->stop();
  }

  void listen() {
    const auto& address = desk.options.address;
    const tcp::endpoint endpoint(net::ip::make_address(address.host), address.port);
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(net::socket_base::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(net::socket_base::max_listen_connections, error);
    if (!error) return;
    if (error == net::error::address_in_use) {
      const auto who = device::who_listens(address.port);
      throw Error(ErrorCode::kUnavailable, "{} is taken by {}; give another port, or port 0 for a free one",
                  address.to_string(), who.empty() ? "another program" : who);
    }
    throw system_error(error.value(), "listening on " + address.to_string());
  }

  void accept() {
    if (desk.num_connections >= desk.options.max_connections) {
      is_full = true;
      return make_room();
    }
    acceptor.async_accept([this](error_code error, tcp::socket socket) {
      if (error == net::error::operation_aborted) return;
      if (error) {  // out of memory or descriptors; other connections may soon free some
        return after(milliseconds(100), [this] { accept(); });
      }
      std::make_shared<Connection>(std::move(socket), desk)->start();
      accept();
    });
  }

  /// If all connections are taken, ends those that have waited too long for their client.
  void make_room() {
    if (!is_full) return;
    for (auto* connection : desk.at_client) {
      if (!connection->has_waited(kLeast)) break;
      connection->abort();
    }
    after(milliseconds(20), [this] { make_room(); });
  }

  /// The first sample is slow, because drivers wake up, and a driver that hangs uses up the deadline. So it is taken
  /// before the first request arrives. The others are for the history.
  void keep_sampling() {
    desk.samples->get([](Sample*) {});
    next_sample.expires_after(desk.options.history_interval);
    next_sample.async_wait([this](error_code error) {
      if (!error) keep_sampling();
    });
  }

  void after(milliseconds delay, std::function<void()> work) {
    pause.expires_after(delay);
    pause.async_wait([work = std::move(work)](error_code error) {
      if (!error) work();
    });
  }

  Desk desk;
  bool is_full = false;
  net::io_context io{1};  ///< Declared after the desk, because its destructor ends the connections, which use the desk.
  tcp::acceptor acceptor;
  net::steady_timer pause;
  net::steady_timer next_sample;
  net::signal_set signals;
};

Server::Server(const ServerOptions& options, std::function<Machine()> sample)
    : impl_(std::make_unique<Impl>(options, std::move(sample))) {}

Server::~Server() = default;

std::string Server::url(std::string_view path) const {
  Address address = impl_->desk.options.address;
  address.port = impl_->acceptor.local_endpoint().port();
  return fmt::format("http://{}{}", address.to_string(), path);
}

void Server::run() {
  impl_->signals.add(SIGINT);
  impl_->signals.add(SIGTERM);
  impl_->signals.async_wait([this](error_code error, int) {
    if (!error) impl_->io.stop();
  });
  impl_->keep_sampling();
  impl_->accept();
  impl_->io.run();
}

void Server::stop() { impl_->io.stop(); }

}  // namespace yoke::web
