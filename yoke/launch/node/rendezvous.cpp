#include "yoke/launch/node/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/host.h"

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kHandshakePatience{5};
constexpr size_t kMaxPending = 128;
constexpr seconds kRest{1};
constexpr milliseconds kRetryEvery{200};
constexpr seconds kConnectPatience{5};
constexpr seconds kSayWaitingAfter{2};
/// A head greets first. If nothing arrives for this long, the node sends its own greeting: the answer may show which
/// other program listens.
constexpr seconds kGreetFirstAfter{1};
constexpr seconds kHangUpWithin{1};
/// The maximum number of messages about refused connections. A port scanner, or a program that requests a web page
/// every second, must not fill the screen.
constexpr size_t kMaxComplaints = 32;

constexpr const char* kNoHead = "start `yoke run` on the first node, or give a different port in --rdzv-endpoint";
constexpr const char* kNoToken =
    "all nodes of a job need the same --rdzv-id and the same token (YOKE_JOB_TOKEN, or the file ~/.config/yoke/token, "
    "which hosts without a common home do not share)";

struct AddressesDeleter {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesDeleter>;

/// Returns null if the name does not exist, and stores the error of getaddrinfo() in `error`.
Addresses resolve(const std::string& host, uint16_t port, int& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return Addresses(error == 0 ? list : nullptr);
}

/// Listens on all addresses of this machine, IPv4 and IPv6 if it has both.
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

/// Sends small messages without delay (disables Nagle's algorithm).
void send_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void send_all(int fd, std::string_view text) {
  while (!text.empty()) {  // a few hundred bytes fit into the buffer of a new socket
    const auto count = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

/// Searches for the head of this node's job at the endpoint.
class HeadSearch {
 public:
  HeadSearch(const NodesSpec& nodes, const std::string& run_id, const Wait& wait,
             const std::function<void(const std::string&)>& say)
      : nodes_(nodes), run_id_(run_id), wait_(wait), say_(say) {}

  std::unique_ptr<Channel> search(bool is_return) {
    while (!wait({})) {
      if (auto channel = try_all(is_return)) return channel;
      if (Clock::now() >= until_) {
        throw Error(ErrorCode::kTimeout,
                    "no head node answered at {} within {} ({}); start `yoke run` on the first node, or correct "
                    "--rdzv-endpoint",
                    endpoint(), format_duration(nodes_.membership.join_timeout), why_);
      }
      if (wait(kRetryEvery)) break;
    }
    return nullptr;
  }

  /// Tries every address of the endpoint once. Returns null if the search must go on. Errors  kPermissionDenied,
  /// kUnavailable.
  std::unique_ptr<Channel> try_all(bool is_return) {
    int error = 0;
    const auto addresses = resolve(nodes_.endpoint_host, nodes_.endpoint_port, error);
    if (!addresses) why_ = gai_strerror(error);
    for (const auto* one = addresses.get(); one != nullptr && !is_cancelled_; one = one->ai_next) {
      auto fd = connect_once(*one);
      if (!fd) {
        why_ = std::generic_category().message(errno);
        if (is_return && errno == ECONNREFUSED) {
          throw Error(ErrorCode::kUnavailable, "the head node at {} has ended, so this node cannot join the job again",
                      endpoint());
        }
        num_hang_ups_ = 0;
        continue;
      }
      if (!shake_hands(fd.value(), *one)) continue;
      send_at_once(fd.value());
      return to_channel(std::move(fd), nodes_.silence);
    }
    return nullptr;
  }

 private:
  std::string endpoint() const { return fmt::format("{}:{}", nodes_.endpoint_host, nodes_.endpoint_port); }

  /// Waits for `limit` while other events are handled. Returns true if the search was cancelled.
  bool wait(milliseconds limit) {
    for (const auto next = Clock::now() + limit; !is_cancelled_;) {
      if (!has_said_ && !why_.empty() && Clock::now() >= began_ + kSayWaitingAfter) {
        say_(fmt::format("waiting for the head node at {} ({})", endpoint(), why_));
        has_said_ = true;
      }
      is_cancelled_ = wait_(std::max(milliseconds(0), std::chrono::ceil<milliseconds>(next - Clock::now())));
      if (Clock::now() >= next) break;
    }
    return is_cancelled_;
  }

  /// Returns a connected non-blocking socket, or an empty UniqueFd with errno.
  UniqueFd connect_once(const addrinfo& address) {
    UniqueFd fd(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
    if (!fd) return fd;
    if (connect(fd.value(), address.ai_addr, address.ai_addrlen) == 0) return fd;
    if (errno != EINPROGRESS) return UniqueFd();
    const auto until = std::min(until_, Clock::now() + kConnectPatience);
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

  /// Returns true once both sides have proved that they know the token, and false if the search must go on. Errors
  /// kPermissionDenied.
  bool shake_hands(int fd, const addrinfo& address) {
    Handshake handshake(Handshake::Side::kAgent, nodes_.token, run_id_);
    std::string received, to_send;
    const auto began = Clock::now(), until = std::min(until_, began + kHandshakePatience);
    bool has_greeted = false, has_heard = false;
    while (handshake.state() == Handshake::State::kTalking) {
      pollfd one{fd, POLLIN, 0};
      if (poll(&one, 1, 20) == 0) {
        why_ = "what listens there accepts connections, but sends nothing";
        if (Clock::now() >= until || wait(milliseconds(20))) return false;
        if (!has_heard && !has_greeted && Clock::now() >= began + kGreetFirstAfter) {
          handshake.greet_first(to_send);
          has_greeted = true;
        }
        if (!has_heard && !has_probed_ && Clock::now() >= began + kGreetFirstAfter + kHangUpWithin) {
          has_probed_ = true;
          if (is_torchs_store(address))
            throw stranger("a TCPStore of PyTorch listens there, torchrun's or that of a different job");
        }
      } else {
        char buffer[256];
        const auto count = recv(fd, buffer, sizeof buffer, 0);
        if (count <= 0) {
          on_hang_up(has_greeted && !has_heard && Clock::now() < began + kGreetFirstAfter + kHangUpWithin);
          return false;
        }
        has_heard = true;
        received.append(buffer, static_cast<size_t>(count));
        handshake.feed(received, to_send);
      }
      send_all(fd, to_send);
      to_send.clear();
    }
    if (handshake.state() == Handshake::State::kDone) return true;
    throw Error(ErrorCode::kPermissionDenied, "cannot join the job at {}: {}; {}", endpoint(), handshake.reason(),
                handshake.is_stranger() ? kNoHead : kNoToken);
  }

  /// Whether torch's TCPStore listens at `address`.
  bool is_torchs_store(const addrinfo& address) {
    const auto fd = connect_once(address);
    if (!fd) return false;
    send_all(fd.value(), kQuestionToStore);
    for (const auto until = Clock::now() + kHangUpWithin; Clock::now() < until && !wait(milliseconds(20));) {
      char answer[kAnswerOfStore.size()];
      const auto count = recv(fd.value(), answer, sizeof answer, MSG_PEEK);
      if (count == static_cast<ssize_t>(sizeof answer))
        return std::string_view(answer, sizeof answer) == kAnswerOfStore;
      if (count == 0) return false;
    }
    return false;
  }

  Error stranger(const std::string& what) const {
    return Error(ErrorCode::kPermissionDenied, "cannot join the job at {}: {}; {}", endpoint(), what, kNoHead);
  }

  /// The peer closed the connection. `after_greeting`: it did so right after this node sent its greeting. Other
  /// closings do not count: a head greets first, and a port forwarder without a target closes the connection before the
  /// greeting. Only the second closing in a row counts, because the first one may come from a head that was killed.
  void on_hang_up(bool after_greeting) {
    why_ = "what listens there closes the connection";
    num_hang_ups_ = after_greeting ? num_hang_ups_ + 1 : 0;
    if (num_hang_ups_ < 2) return;
    throw stranger("what listens there closes the connection when yoke greets it, as older TCPStores of PyTorch do");
  }

  const NodesSpec& nodes_;
  const std::string& run_id_;
  const Wait& wait_;
  const std::function<void(const std::string&)>& say_;
  const Clock::time_point began_ = Clock::now(), until_ = began_ + nodes_.membership.join_timeout;
  std::string why_;  ///< Why no head has been found so far.
  bool has_said_ = false;
  bool is_cancelled_ = false;
  int num_hang_ups_ = 0;  ///< The number of consecutive connections that the peer closed.
  bool has_probed_ = false;
};

}  // namespace

std::unique_ptr<Channel> to_channel(UniqueFd socket, milliseconds silence) {
  UniqueFd other(fcntl(socket.value(), F_DUPFD_CLOEXEC, 0));
  return std::make_unique<Channel>(std::move(socket), std::move(other), silence);
}

Listener::Listener(const NodesSpec& nodes, std::string run_id)
    : nodes_(nodes), run_id_(std::move(run_id)), socket_(listen_everywhere(nodes.endpoint_port)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(socket_.value(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

void Listener::add_to(WaitSet& waits) {
  waits.read(rest_until_ ? -1 : socket_.value(), is_called_);
  waits.until(rest_until_);
  for (auto& one : pending_) {
    waits.read(one.socket.value(), one.is_ready);
    waits.until(one.until);
  }
}

void Listener::handle(LoopTime now) {
  for (auto& one : pending_) talk_to(one, now);
  std::erase_if(pending_, [](const Pending& one) { return !one.socket; });
  if (is_called_) accept_some(now);
  if (rest_until_ && now >= *rest_until_) rest_until_.reset();
}

void Listener::talk_to(Pending& one, LoopTime now) {
  if (one.is_ready) {
    char buffer[256];
    const auto count = recv(one.socket.value(), buffer, sizeof buffer, 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return one.socket.reset();
    std::string to_send;
    one.received.append(buffer, static_cast<size_t>(std::max<ssize_t>(0, count)));
    one.handshake->feed(one.received, to_send);
    send_all(one.socket.value(), to_send);
  }
  if (one.handshake->state() == Handshake::State::kDone) {
    send_at_once(one.socket.value());
    arrivals_.push_back({std::move(one.socket), one.address});
  } else if (one.handshake->state() == Handshake::State::kRefused) {
    // A node that waited for this head while it was stopped asked that, and tries again.
    if (!one.received.starts_with(kQuestionToStore)) complain(one.address, one.handshake->reason());
    one.socket.reset();
  } else if (now >= one.until) {
    complain(one.address, fmt::format("it connected, but did not complete yoke's greeting within {}",
                                      format_duration(kHandshakePatience)));
    one.socket.reset();
  }
}

void Listener::complain(const std::string& address, const std::string& why) {
  auto text = fmt::format("refused a connection from {}: {}", address, why);
  if (said_.size() >= kMaxComplaints || !said_.insert(text).second) return;
  complaints_.push_back(std::move(text));
  if (said_.size() == kMaxComplaints) complaints_.emplace_back("further refused connections are not reported");
}

void Listener::accept_some(LoopTime now) {
  while (true) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    UniqueFd fd(accept4(socket_.value(), generic, &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      // Without descriptors or memory the connection cannot be accepted, and the loop would spin.
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) rest_until_ = now + kRest;
      return;
    }
    // Connections that send nothing must not keep others out, so the oldest one is dropped.
    if (pending_.size() == kMaxPending) pending_.erase(pending_.begin());
    auto handshake = std::make_unique<Handshake>(Handshake::Side::kHead, nodes_.token, run_id_);
    std::string nothing, greeting;
    handshake->feed(nothing, greeting);
    greetings_.push_back(handshake->own_random());
    if (greetings_.size() > kMaxPending) greetings_.pop_front();
    send_all(fd.value(), greeting);
    pending_.push_back({.socket = std::move(fd),
                        .address = address_text(generic, size),
                        .handshake = std::move(handshake),
                        .until = now + kHandshakePatience});
  }
}

bool is_own_address(const std::string& host) {
  int error = 0;
  const auto addresses = resolve(host, 0, error);
  if (!addresses)
    throw Error(ErrorCode::kNotFound, "cannot resolve the host {} of the endpoint where nodes join: {}", host,
                gai_strerror(error));
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return false;
  bool found = false;
  for (const auto* wanted = addresses.get(); wanted != nullptr && !found; wanted = wanted->ai_next) {
    const auto text = address_text(wanted->ai_addr, wanted->ai_addrlen);
    // Debian maps a host's own name to 127.0.1.1, which no interface has. So all loopback addresses count as own.
    found = text.starts_with("127.") || text == "::1";
    for (const auto* one = interfaces; one != nullptr && !found; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != wanted->ai_family) continue;
      const socklen_t size = wanted->ai_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
      found = address_text(one->ifa_addr, size) == text;
    }
  }
  freeifaddrs(interfaces);
  return found;
}

std::unique_ptr<Channel> connect_to_head(const NodesSpec& nodes, const std::string& run_id, bool is_return,
                                         const Wait& wait, const std::function<void(const std::string&)>& say) {
  return HeadSearch(nodes, run_id, wait, say).search(is_return);
}

bool has_head(const NodesSpec& nodes, const std::string& run_id) {
  const auto sleep = [](milliseconds limit) {
    poll(nullptr, 0, static_cast<int>(limit.count()));
    return false;
  };
  try {
    return HeadSearch(nodes, run_id, sleep, [](const std::string&) {}).try_all(false) != nullptr;
  } catch (const Error&) {
    return false;  // the listener is the head of a different job, or a different program
  }
}

}  // namespace yoke::launch
