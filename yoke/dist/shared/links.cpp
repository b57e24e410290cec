#include "yoke/dist/shared/links.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/host.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"

namespace yoke::dist::shared {
namespace {

using std::chrono::milliseconds;

constexpr size_t kSecretBytes = 32;
constexpr milliseconds kCheckInterval(20);
/// Without an answer for so long, a connection has ended: a host has been lost, or the network.
constexpr int kSilenceSeconds = 60, kProbeSeconds = 2;

/// Begins a connection; the head of the sender's segment follows.
struct Hello {
  char secret[kSecretBytes];
  int64_t from = 0, to = 0;
};

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& address, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int status = getaddrinfo(address.c_str(), port.c_str(), &hints, &found); status != 0) {
    throw Error(ErrorCode::kInternal, "'{}' is not the address of a host: {}", address, gai_strerror(status));
  }
  return {found, freeaddrinfo};
}

UniqueFd socket_for(const addrinfo& address) {
  UniqueFd fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (!fd) throw system_error(errno, "making a socket for ranks of other hosts");
  return fd;
}

void set_option(const UniqueFd& fd, int level, int option, int value) {
  setsockopt(fd.value(), level, option, &value, sizeof value);
}

void prepare(const UniqueFd& connection) {
  set_option(connection, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(connection, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(connection, IPPROTO_TCP, TCP_KEEPIDLE, kProbeSeconds);
  set_option(connection, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set_option(connection, IPPROTO_TCP, TCP_KEEPCNT, kSilenceSeconds / kProbeSeconds - 1);
  set_option(connection, IPPROTO_TCP, TCP_USER_TIMEOUT, kSilenceSeconds * 1000);
}

/// Returns whether `fd` is ready for `events` by then.
bool wait_for(const UniqueFd& fd, short events, const LinkOptions& options) {
  while (true) {
    pollfd polled{fd.value(), events, 0};
    if (poll(&polled, 1, static_cast<int>(kCheckInterval.count())) > 0) return true;
    if (options.check) options.check();
    if (Clock::now() >= options.until) return false;
  }
}

std::vector<std::byte> hello_bytes(const Hello& hello, const Segment& segment) {
  const auto head = segment.head();
  std::vector<std::byte> bytes(sizeof hello + head.size());
  std::memcpy(bytes.data(), &hello, sizeof hello);
  std::memcpy(bytes.data() + sizeof hello, head.data(), head.size());
  return bytes;
}

UniqueFd connect_to_rank(int64_t rank, size_t host_of_rank, const LinkOptions& options) {
  const auto words = split(options.addresses[static_cast<size_t>(rank)], ' ');
  if (words.size() != 3 || words[2].size() != kSecretBytes) {
    throw Error(ErrorCode::kUnavailable, "rank {} of the group takes no connections of other hosts", rank);
  }
  const std::string host(words[0]);
  const auto where = resolve(host, std::string(words[1]));
  auto fd = socket_for(*where);
  prepare(fd);
  if (connect(fd.value(), where->ai_addr, where->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) throw system_error(errno, fmt::format("connecting to rank {} at {}", rank, host));
    int error = ETIMEDOUT;
    socklen_t size = sizeof error;
    if (wait_for(fd, POLLOUT, options)) getsockopt(fd.value(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == ETIMEDOUT) {
      throw NoAnswer(fmt::format("rank {} at {} gives no answer, as behind a firewall that drops packets", rank, host),
                     host_of_rank);
    }
    if (error != 0) throw system_error(error, fmt::format("connecting to rank {} at {}", rank, host));
  }
  Hello hello{.secret = {}, .from = options.rank, .to = rank};
  words[2].copy(hello.secret, kSecretBytes);
  const auto bytes = hello_bytes(hello, *options.segment);  // far less than a new connection takes at once
  if (send(fd.value(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != std::ssize(bytes)) {
    throw system_error(errno, fmt::format("writing to rank {} at {}", rank, host));
  }
  return fd;
}

/// A connection of which it is not known whose it is.
struct Stranger {
  UniqueFd connection;
  std::vector<std::byte> said;
};

}  // namespace

Listener::Listener(const std::string& address) : secret_(random_digits(kSecretBytes)) {
  const auto where = resolve(address, "0");
  socket_ = socket_for(*where);
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  char port[NI_MAXSERV] = "";
  if (bind(socket_.value(), where->ai_addr, where->ai_addrlen) != 0 || listen(socket_.value(), SOMAXCONN) != 0 ||
      getsockname(socket_.value(), reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), size, nullptr, 0, port, sizeof port, NI_NUMERICSERV) != 0) {
    throw system_error(errno, "listening at " + address + " for ranks of other hosts");
  }
  address_ = address + " " + port + " " + secret_;
}

Links connect_hosts(Listener& listener, const LinkOptions& options) {
  Links links{.topology = Topology(options.hosts, options.rank)};
  for (const int64_t carrier : links.topology->carriers()) {
    const auto host = host_of(options.hosts, carrier);
    links.out.push_back({connect_to_rank(carrier, host, options), options.hosts[host]});
  }
  std::set<int64_t> expected(links.topology->carried().begin(), links.topology->carried().end());
  std::vector<Stranger> strangers;
  const size_t hello_size = sizeof(Hello) + options.segment->head().size();
  /// Returns false if the stranger is none of those that are expected.
  const auto attend = [&](Stranger& stranger) {
    std::byte bytes[512];
    const auto left = std::min(hello_size - stranger.said.size(), sizeof bytes);
    const auto count = recv(stranger.connection.value(), bytes, left, MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    stranger.said.insert(stranger.said.end(), bytes, bytes + count);
    if (stranger.said.size() < hello_size) return true;
    Hello hello;
    std::memcpy(&hello, stranger.said.data(), sizeof hello);
    Hello wanted{.secret = {}, .from = hello.from, .to = options.rank};
    listener.secret_.copy(wanted.secret, kSecretBytes);
    if (stranger.said != hello_bytes(wanted, *options.segment) || expected.erase(hello.from) == 0) return false;
    prepare(stranger.connection);
    links.in.push_back({std::move(stranger.connection), hello.from});
    return false;
  };
  while (!expected.empty()) {
    std::vector<pollfd> polled = {{listener.socket_.value(), POLLIN, 0}};
    for (const auto& stranger : strangers) polled.push_back({stranger.connection.value(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), static_cast<int>(kCheckInterval.count())) <= 0) {
      if (options.check) options.check();
    }
    if (Clock::now() >= options.until + options.for_connectors) {
      throw Error(ErrorCode::kUnavailable, "rank {} has not connected to this one", *expected.begin());
    }
    for (size_t i = strangers.size(); i-- > 0;) {
      if (polled[i + 1].revents != 0 && !attend(strangers[i])) {
        strangers.erase(strangers.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (polled[0].revents == 0) continue;
    if (UniqueFd connection(accept4(listener.socket_.value(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        connection) {
      strangers.push_back({std::move(connection), {}});
    }
  }
  return links;
}

}  // namespace yoke::dist::shared
