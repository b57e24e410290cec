#include "yoke/launch/node/rendezvous.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "yoke/base/error.h"
#include "yoke/base/format.h"

namespace yoke::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kHandshakePatience{5};
constexpr size_t kMaxPending = 128;
constexpr seconds kRest{1};
constexpr milliseconds kRetryEvery{200};
constexpr seconds kConnectPatience{5};
constexpr seconds kSayWaitingAfter{2};

struct AddressesDeleter {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesDeleter>;

/// Null, with `error` as getaddrinfo has it, where the name is none.
Addresses resolve(const std::string& host, uint16_t port, int& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return Addresses(error == 0 ? list : nullptr);
}

std::string text_of(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  const std::string_view mapped = "::ffff:";  // IPv4 that came to a socket of IPv6
  return std::string_view(text).starts_with(mapped) ? text + mapped.size() : text;
}

/// All addresses of this machine, IPv4 and IPv6 where there is both.
UniqueFd listen_everywhere(uint16_t port) {
  int error_number = 0;
  for (const int family : {AF_INET6, AF_INET}) {
    UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) continue;
    const int on = 1, off = 0;
    setsockopt(fd.value(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    socklen_t size = sizeof(sockaddr_in);
    if (family == AF_INET6) {
      setsockopt(fd.value(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
      size = sizeof(sockaddr_in6);
    } else {
      reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
    }
    if (bind(fd.value(), reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(fd.value(), 128) == 0) return fd;
    error_number = errno;
    if (error_number == EADDRINUSE) break;
  }
  throw system_error(error_number, fmt::format("listening for the other nodes on port {}", port));
}

/// Both sides are small messages and want them at once.
void send_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void send_all(int fd, std::string_view text) {
  while (!text.empty()) {  // some hundred bytes, on a fresh socket: there is room
    const auto count = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

std::unique_ptr<Channel> to_channel(UniqueFd socket, milliseconds silence) {
  UniqueFd other(fcntl(socket.value(), F_DUPFD_CLOEXEC, 0));
  return std::make_unique<Channel>(std::move(socket), std::move(other), silence);
}

/// -1 with errno; nonblocking.
UniqueFd connect_once(const addrinfo& address, const Wait& wait) {
  UniqueFd fd(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (!fd) return fd;
  if (connect(fd.value(), address.ai_addr, address.ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS) return UniqueFd();
  const auto until = Clock::now() + kConnectPatience;
  pollfd one{fd.value(), POLLOUT, 0};
  while (poll(&one, 1, 20) == 0) {
    if (Clock::now() >= until || wait(milliseconds(20))) {
      errno = ETIMEDOUT;
      return UniqueFd();
    }
  }
  int error_number = 0;
  socklen_t size = sizeof error_number;
  getsockopt(fd.value(), SOL_SOCKET, SO_ERROR, &error_number, &size);
  errno = error_number;
  return error_number == 0 ? std::move(fd) : UniqueFd();
}

/// True once both have proved themselves; false: try again, for `why`. Errors  kPermissionDenied.
bool shake_hands(int fd, const NodesSpec& nodes, const std::string& run_id, const Wait& wait, std::string& why) {
  Handshake handshake(Handshake::Side::kAgent, nodes.token, run_id);
  std::string received, to_send;
  const auto until = Clock::now() + kHandshakePatience;
  while (handshake.state() == Handshake::State::kTalking) {
    pollfd one{fd, POLLIN, 0};
    if (poll(&one, 1, 20) == 0) {
      why = fmt::format("it accepts, and says nothing for {}", format_duration(kHandshakePatience));
      if (Clock::now() >= until || wait(milliseconds(20))) return false;
      continue;
    }
    char buffer[256];
    const auto count = recv(fd, buffer, sizeof buffer, 0);
    if (count <= 0) {
      why = "it closes the connection";
      return false;
    }
    received.append(buffer, static_cast<size_t>(count));
    handshake.feed(received, to_send);
    send_all(fd, to_send);
    to_send.clear();
  }
  if (handshake.state() == Handshake::State::kDone) return true;
  throw Error(
      ErrorCode::kPermissionDenied,
      "the endpoint {}:{}: {}; all nodes of a job need the same --rdzv-id and the same token (YOKE_JOB_TOKEN, or "
      "the file ~/.config/yoke/token, which hosts without a common home do not share)",
      nodes.endpoint_host, nodes.endpoint_port, handshake.reason());
}

}  // namespace

Listener::Listener(const NodesSpec& nodes, std::string run_id)
    : nodes_(nodes), run_id_(std::move(run_id)), socket_(listen_everywhere(nodes.endpoint_port)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(socket_.value(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

void Listener::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({Clock::now() >= rest_until_ ? socket_.value() : -1, POLLIN, 0});
  for (const auto& one : pending_) polls.push_back({one.socket.value(), POLLIN, 0});
}

std::vector<Listener::Arrival> Listener::handle(const std::vector<pollfd>& polls, size_t first,
                                                std::vector<std::string>& complaints) {
  std::vector<Arrival> arrivals;
  const auto now = Clock::now();
  for (size_t i = 0; i < pending_.size(); ++i) {
    auto& one = pending_[i];
    if (polls[first + 1 + i].revents != 0) {
      char buffer[256];
      const auto count = recv(one.socket.value(), buffer, sizeof buffer, 0);
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
        one.socket.reset();
        continue;
      }
      std::string to_send;
      one.received.append(buffer, static_cast<size_t>(std::max<ssize_t>(0, count)));
      one.handshake->feed(one.received, to_send);
      send_all(one.socket.value(), to_send);
    }
    if (one.handshake->state() == Handshake::State::kDone) {
      send_at_once(one.socket.value());
      arrivals.push_back({to_channel(std::move(one.socket), nodes_.silence), one.address});
    } else if (one.handshake->state() == Handshake::State::kRefused) {
      complaints.push_back(fmt::format("refused {}: {}", one.address, one.handshake->reason()));
      one.socket.reset();
    } else if (now >= one.until) {
      one.socket.reset();
    }
  }
  std::erase_if(pending_, [](const Pending& one) { return !one.socket; });
  if (polls[first].revents != 0) accept_some();
  return arrivals;
}

void Listener::accept_some() {
  while (true) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    UniqueFd fd(accept4(socket_.value(), generic, &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      // Out of descriptors or memory: what cannot be accepted would keep the loop awake.
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) rest_until_ = Clock::now() + kRest;
      return;
    }
    // Strangers who say nothing must not keep out those who have something to say.
    if (pending_.size() == kMaxPending) pending_.erase(pending_.begin());
    auto handshake = std::make_unique<Handshake>(Handshake::Side::kHead, nodes_.token, run_id_);
    std::string nothing, greeting;
    handshake->feed(nothing, greeting);
    send_all(fd.value(), greeting);
    pending_.push_back(
        {std::move(fd), text_of(generic, size), std::move(handshake), "", Clock::now() + kHandshakePatience});
  }
}

std::optional<Listener::Time> Listener::next_time() const {
  std::optional<Time> next;
  if (rest_until_ > Clock::now()) next = rest_until_;
  for (const auto& one : pending_) {
    if (!next || one.until < *next) next = one.until;
  }
  return next;
}

bool is_own_address(const std::string& host) {
  int error = 0;
  const auto addresses = resolve(host, 0, error);
  if (!addresses) throw Error(ErrorCode::kNotFound, "the endpoint's host {}: {}", host, gai_strerror(error));
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return false;
  bool found = false;
  for (const auto* wanted = addresses.get(); wanted != nullptr && !found; wanted = wanted->ai_next) {
    const auto text = text_of(wanted->ai_addr, wanted->ai_addrlen);
    // Debian gives a host's own name 127.0.1.1, which no interface has.
    found = text.starts_with("127.") || text == "::1";
    for (const auto* one = interfaces; one != nullptr && !found; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != wanted->ai_family) continue;
      const socklen_t size = wanted->ai_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
      found = text_of(one->ifa_addr, size) == text;
    }
  }
  freeifaddrs(interfaces);
  return found;
}

std::unique_ptr<Channel> connect_to_head(const NodesSpec& nodes, const std::string& run_id, bool is_return,
                                         const Wait& wait, const std::function<void(const std::string&)>& say) {
  const auto began = Clock::now();
  const auto until = began + nodes.membership.join_timeout;
  bool has_said = false;
  std::string why;
  while (!wait({})) {
    int error = 0;
    const auto addresses = resolve(nodes.endpoint_host, nodes.endpoint_port, error);
    if (!addresses) why = gai_strerror(error);
    for (const auto* one = addresses.get(); one != nullptr; one = one->ai_next) {
      auto fd = connect_once(*one, wait);
      if (!fd) {
        why = std::generic_category().message(errno);
        if (is_return && errno == ECONNREFUSED) {
          throw Error(ErrorCode::kUnavailable, "the head of the job at {}:{} is gone", nodes.endpoint_host,
                      nodes.endpoint_port);
        }
        continue;
      }
      if (!shake_hands(fd.value(), nodes, run_id, wait, why)) continue;
      send_at_once(fd.value());
      return to_channel(std::move(fd), nodes.silence);
    }
    const auto now = Clock::now();
    if (now >= until) {
      throw Error(ErrorCode::kTimeout, "no head of the job at {}:{} within {}: {}; is the first node running?",
                  nodes.endpoint_host, nodes.endpoint_port, format_duration(nodes.membership.join_timeout), why);
    }
    if (!has_said && now >= began + kSayWaitingAfter) {
      say(fmt::format("waiting for the head of the job at {}:{} ({})", nodes.endpoint_host, nodes.endpoint_port, why));
      has_said = true;
    }
    for (const auto next = now + kRetryEvery; Clock::now() < next;) {
      if (wait(std::chrono::ceil<milliseconds>(next - Clock::now()))) return nullptr;
    }
  }
  return nullptr;
}

}  // namespace yoke::launch
