#include "yoke/dist/detail/gloo.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "yoke/base/file.h"

namespace yoke::dist {
namespace {

/// Returns the address of this host on the route to `host`; empty if unknown. Sends nothing: Linux chooses the source
/// address when a UDP socket is connected. The host's own name is less reliable: it may resolve to a different
/// interface, to loopback, or not at all.
std::string address_towards(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  for (const auto* one = found; one != nullptr; one = one->ai_next) {
    const UniqueFd fd(socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
    if (!fd || connect(fd.value(), one->ai_addr, one->ai_addrlen) != 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char text[NI_MAXHOST] = "";
    if (getsockname(fd.value(), reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    return text;
  }
  return "";
}

/// Returns the first address of an interface; empty if it has none.
std::string address_of_interface(const std::string& name) {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> addresses(found, freeifaddrs);
  for (const auto* one = found; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || name != one->ifa_name) continue;
    const auto family = one->ifa_addr->sa_family;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : family == AF_INET6 ? sizeof(sockaddr_in6) : 0;
    char text[NI_MAXHOST] = "";
    if (size > 0 && getnameinfo(one->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) return text;
  }
  return "";
}

constexpr std::chrono::seconds kShortestTry(2);

}  // namespace

std::string link_address(const RankEnv& rank) {
  const char* const interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces == nullptr) return gloo_address(rank);
  const std::string_view names = interfaces;
  return address_of_interface(std::string(names.substr(0, names.find(','))));
}

std::string gloo_address(const RankEnv& rank) {
  if (std::getenv("GLOO_SOCKET_IFNAME") != nullptr) return "";
  return rank.local_world_size == rank.world_size ? "127.0.0.1" : address_towards(rank.master_addr, rank.master_port);
}

c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, const GlooOptions& options) {
  using c10d::ProcessGroupGloo;
  // Gloo tries five times to connect, each time for so long. All ranks are there, so that a busy one answers in time.
  const auto of_a_try =
      std::max(options.timeout / 5, std::min<std::chrono::milliseconds>(options.timeout, kShortestTry));
  c10::intrusive_ptr<ProcessGroupGloo::Options> given;
  if (options.address.empty()) {
    given = ProcessGroupGloo::Options::create_default(of_a_try);
  } else {
    given = ProcessGroupGloo::Options::create(of_a_try);
    given->devices.push_back(ProcessGroupGloo::createDeviceForHostname(options.address));
  }
  auto gloo = c10::make_intrusive<ProcessGroupGloo>(std::move(store), static_cast<int>(options.rank),
                                                    static_cast<int>(options.size), std::move(given));
  gloo->setTimeout(options.timeout);
  return gloo;
}

}  // namespace yoke::dist
