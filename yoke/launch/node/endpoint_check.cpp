#include "yoke/launch/node/endpoint_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/host.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/launch/node/handshake.h"

namespace yoke::launch {
namespace {

/// A name, or what listens there, may come a moment after this head.
constexpr std::chrono::seconds kEndpointPatience{2};
constexpr std::chrono::milliseconds kEndpointPause{200};

/// What the child finds is its first letter; more follows.
constexpr char kNoName = 'N';     ///< The reason.
constexpr char kElsewhere = 'E';  ///< The addresses.
constexpr char kHead = 'H';       ///< The random bytes of the greeting, then the address.

std::vector<std::string> own_addresses() {
  std::vector<std::string> texts;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return texts;
  for (const auto* one = interfaces; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    auto text = address_text(one->ifa_addr, family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    // Debian maps a host's own name to 127.0.1.1, which no interface has.
    if (!text.starts_with("127.") && text != "::1" && !text.starts_with("fe80")) texts.push_back(std::move(text));
  }
  freeifaddrs(interfaces);
  return texts;
}

bool is_own_or_loopback(const std::string& text, const std::vector<std::string>& own) {
  return text.starts_with("127.") || text == "::1" || std::ranges::find(own, text) != own.end();
}

/// Returns the random bytes with which a head greets at `address`; empty if none does in time.
std::string greeting_at(const addrinfo& address, Clock::time_point until) {
  const UniqueFd fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return "";
  if (connect(fd.value(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) return "";
  std::string received;
  const auto num_bytes = kHeadGreeting.size() + kRandomBytes;
  while (received.size() < num_bytes) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    pollfd one{fd.value(), POLLIN, 0};
    if (left.count() <= 0 || poll(&one, 1, static_cast<int>(left.count())) <= 0) return "";
    char buffer[256];
    const auto count = recv(fd.value(), buffer, std::min(sizeof buffer, num_bytes - received.size()), 0);
    if (count <= 0) return "";
    received.append(buffer, static_cast<size_t>(count));
  }
  return received.starts_with(kHeadGreeting) ? received.substr(kHeadGreeting.size()) : "";
}

std::string look_at(const std::string& host, uint16_t port) {
  const auto until = Clock::now() + kEndpointPatience;
  std::string answer;
  do {
    addrinfo hints{}, *list = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); error != 0) {
      answer = kNoName + std::string(gai_strerror(error));
    } else {
      const auto own = own_addresses();
      std::vector<std::string> texts;
      for (const auto* one = list; one != nullptr; one = one->ai_next) {
        auto text = address_text(one->ai_addr, one->ai_addrlen);
        if (is_own_or_loopback(text, own)) return "";
        if (const auto greeting = greeting_at(*one, until); !greeting.empty()) return kHead + greeting + text;
        if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
      }
      freeaddrinfo(list);
      answer = fmt::format("{}{}", kElsewhere, fmt::join(texts, ", "));
    }
    poll(nullptr, 0, static_cast<int>(kEndpointPause.count()));
  } while (Clock::now() < until);
  return answer;
}

}  // namespace

EndpointCheck::EndpointCheck(std::string host, uint16_t port, std::function<bool(const std::string&)> is_own)
    : host_(std::move(host)), port_(port), is_own_(std::move(is_own)) {
  auto pipe = make_pipe();
  child_ = fork();
  if (child_ < 0) return;  // nothing depends on it
  if (child_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "yoke-endpoint");
    const int out = pipe.write_end.value();
    close_all_except({out});
    try {
      const auto answer = look_at(host_, port_);
      if (write(out, answer.data(), answer.size()) < 0) _exit(1);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  found_ = std::move(pipe.read_end);
  fcntl(found_.value(), F_SETFL, O_NONBLOCK);
}

EndpointCheck::~EndpointCheck() {
  if (child_ <= 0 || waitpid(child_, nullptr, WNOHANG) != 0) return;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

void EndpointCheck::add_to(WaitSet& waits) { waits.read(found_.value(), has_found_); }

void EndpointCheck::handle(LoopTime) {
  if (!has_found_ || !found_) return;
  char buffer[4096];
  const auto count = read(found_.value(), buffer, sizeof buffer);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count > 0) {
    answer_.append(buffer, static_cast<size_t>(count));
    return;
  }
  found_.reset();
  if (child_ > 0) waitpid(std::exchange(child_, -1), nullptr, 0);
  judge();
}

void EndpointCheck::judge() {
  if (answer_.empty()) return;
  const auto rest = answer_.substr(1);
  const auto endpoint = fmt::format("{}:{}", printable(host_), port_);
  const auto own = own_addresses();
  const auto here =
      own.empty() ? std::string("this host has no address") : fmt::format("this host has {}", fmt::join(own, ", "));
  const auto which = [&](const std::string& addresses) {
    return addresses == host_ ? std::string() : fmt::format(" ({})", printable(addresses));
  };
  if (answer_.front() == kNoName) {
    doubt_ = fmt::format(
        "nodes look for this head at {}, but here that name has no address ({}); correct "
        "--rdzv-endpoint, unless other hosts know the name",
        endpoint, printable(rest));
  } else if (answer_.front() == kElsewhere) {
    doubt_ = fmt::format(
        "nodes look for this head at {}{}, but {}; correct --rdzv-endpoint or --node-rank, unless that "
        "address leads here",
        endpoint, which(rest), here);
  } else if (answer_.front() == kHead && rest.size() > kRandomBytes && !is_own_(rest.substr(0, kRandomBytes))) {
    doubt_ = fmt::format(
        "another head is at {}{}, where nodes look for this one, and {}; only the first node has "
        "--node-rank 0, and each job needs an endpoint of its own",
        endpoint, which(rest.substr(kRandomBytes)), here);
  }
}

std::optional<std::string> EndpointCheck::take_doubt() { return std::exchange(doubt_, std::nullopt); }

}  // namespace yoke::launch
