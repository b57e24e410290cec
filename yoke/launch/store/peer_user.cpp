#include "yoke/launch/store/peer_user.h"

#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

namespace yoke::launch {
namespace {

/// One end of a connection, as the kernel's interfaces write it: IPv4 also where the program sees it as part of IPv6.
struct End {
  bool is_v6 = false;
  std::array<uint32_t, 4> address = {};  ///< In network order; IPv4 has the first element only.
  uint16_t port = 0;                     ///< In network order.
  uint32_t interface = 0;                ///< Of a link-local address; 0: any.

  bool is_loopback() const {
    if (!is_v6) return ntohl(address[0]) >> 24 == 127;
    return address == std::array<uint32_t, 4>{0, 0, 0, htonl(1)};
  }
};

End to_end(const sockaddr_storage& address) {
  End end;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    end.address[0] = v4.sin_addr.s_addr;
    end.port = v4.sin_port;
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    end.port = v6.sin6_port;
    std::memcpy(end.address.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
    end.is_v6 = !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
    if (end.is_v6) {
      if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) end.interface = v6.sin6_scope_id;
    } else {
      end.address = {end.address[3], 0, 0, 0};
    }
  }
  return end;
}

/// A socket of this host. One that its process has closed has no inode, and the kernel says 0 for its user.
struct Socket {
  uid_t uid = 0;
  uint64_t inode = 0;
  int state = 0;
  uint16_t remote_port = 0;  ///< In network order.
};

/// Returns the socket whose own end is `own`, and whose other end is `other`. `is_known`: whether the kernel has
/// answered; then nullopt means that there is no such socket.
std::optional<Socket> ask_netlink(int fd, const End& own, const End& other, bool& is_known) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 body;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = own.is_v6 ? AF_INET6 : AF_INET;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0U;
  auto& id = request.body.id;
  id.idiag_sport = own.port;
  id.idiag_dport = other.port;
  std::memcpy(id.idiag_src, own.address.data(), sizeof id.idiag_src);
  std::memcpy(id.idiag_dst, other.address.data(), sizeof id.idiag_dst);
  id.idiag_if = own.interface;
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  is_known = false;
  if (send(fd, &request, sizeof request, MSG_DONTWAIT) != sizeof request) return std::nullopt;
  alignas(nlmsghdr) char reply[8192];
  const auto count = recv(fd, reply, sizeof reply, MSG_DONTWAIT);  // the kernel has answered when send() returns
  const auto* header = reinterpret_cast<const nlmsghdr*>(reply);
  if (count < 0 || !NLMSG_OK(header, static_cast<size_t>(count))) return std::nullopt;
  if (header->nlmsg_type == NLMSG_ERROR && header->nlmsg_len >= NLMSG_LENGTH(sizeof(nlmsgerr))) {
    is_known = reinterpret_cast<const nlmsgerr*>(NLMSG_DATA(header))->error == -ENOENT;
    return std::nullopt;
  }
  if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY || header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
    return std::nullopt;
  }
  is_known = true;
  const auto& found = *reinterpret_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  return Socket{found.idiag_uid, found.idiag_inode, found.idiag_state, found.id.idiag_dport};
}

/// As the kernel prints an address in /proc/net/tcp: each word of four bytes as a number of this processor.
std::string in_proc(const End& end) {
  std::string text;
  char word[16];
  for (size_t i = 0; i < (end.is_v6 ? 4 : 1); ++i) {
    std::snprintf(word, sizeof word, "%08X", end.address[i]);
    text += word;
  }
  std::snprintf(word, sizeof word, ":%04X", ntohs(end.port));
  return text + word;
}

std::string in_proc_v6(const End& end) {  // IPv4 as a socket of IPv6 has it
  if (end.is_v6) return in_proc(end);
  const bool is_any = end.address[0] == 0;
  return in_proc({true, {0, 0, is_any ? 0 : htonl(0xffff), end.address[0]}, end.port});
}

std::optional<Socket> ask_proc(const End& own, const End& other, bool& is_known) {
  is_known = false;
  for (const bool is_v6 : {false, true}) {
    if (own.is_v6 && !is_v6) continue;
    std::ifstream file(is_v6 ? "/proc/net/tcp6" : "/proc/net/tcp");
    std::string line;
    if (!std::getline(file, line)) continue;
    is_known = true;
    const auto one = is_v6 ? in_proc_v6(own) : in_proc(own), two = is_v6 ? in_proc_v6(other) : in_proc(other);
    while (std::getline(file, line)) {  // number: own other state queues timer retransmits uid timeout inode ...
      char local[64], remote[64];
      unsigned state = 0, uid = 0;
      unsigned long long inode = 0;
      if (std::sscanf(line.c_str(), " %*d: %63s %63s %x %*s %*s %*s %u %*d %llu", local, remote, &state, &uid,
                      &inode) != 5) {
        continue;
      }
      if (one == local && two == remote) return Socket{uid, inode, static_cast<int>(state), other.port};
    }
  }
  return std::nullopt;
}

bool is_of_this_host(const End& end) {
  if (end.is_loopback()) return true;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return false;
  bool found = false;
  for (const auto* one = interfaces; one != nullptr && !found; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != (end.is_v6 ? AF_INET6 : AF_INET)) continue;
    sockaddr_storage address{};
    std::memcpy(&address, one->ifa_addr, end.is_v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    found = to_end(address).address == end.address;
  }
  freeifaddrs(interfaces);
  return found;
}

}  // namespace

PeerUsers::PeerUsers(Source source)
    : netlink_(source == Source::kFiles ? -1 : socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {}

Peer PeerUsers::look_up(const sockaddr_storage& peer, const sockaddr_storage& own) const {
  const auto theirs = to_end(peer), ours = to_end(own);
  bool is_known = false;
  auto found = ask_netlink(netlink_.value(), theirs, ours, is_known);
  if (!found) {
    // A kernel without this part says the same as one that finds nothing. This process's own end is surely there.
    bool is_answer = false;
    if (!is_known || !ask_netlink(netlink_.value(), ours, theirs, is_answer)) {
      found = ask_proc(theirs, ours, is_known);
      if (!found && is_known) is_known = ask_proc(ours, theirs, is_answer).has_value();
    }
  }
  if (found && found->inode != 0 && found->state != TCP_LISTEN && found->remote_port == ours.port) {
    return {Peer::Kind::kUser, found->uid};
  }
  return {is_known && is_of_this_host(theirs) ? Peer::Kind::kGone : Peer::Kind::kElsewhere};
}

}  // namespace yoke::launch
