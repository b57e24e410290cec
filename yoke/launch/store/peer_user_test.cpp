#include "yoke/launch/store/peer_user.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "yoke/base/process.h"

namespace yoke::launch {
namespace {

sockaddr_storage address_of(const std::string& text, uint16_t port) {
  sockaddr_storage address{};
  if (text.find(':') == text.npos) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    inet_pton(AF_INET, text.c_str(), &v4.sin_addr);
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr);
  }
  return address;
}

/// How a server sees a connection.
struct Accepted {
  UniqueFd socket;
  sockaddr_storage peer{}, own{};
};

struct Listener {
  explicit Listener(const std::string& address)
      : socket(::socket(address.find(':') == address.npos ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    auto bound = address_of(address, 0);
    EXPECT_EQ(bind(socket.value(), reinterpret_cast<sockaddr*>(&bound), sizeof bound), 0);
    EXPECT_EQ(listen(socket.value(), 8), 0);
    socklen_t size = sizeof bound;
    getsockname(socket.value(), reinterpret_cast<sockaddr*>(&bound), &size);
    port = ntohs(reinterpret_cast<sockaddr_in&>(bound).sin_port);  // at the same place in both families
  }
  UniqueFd connect_to(const std::string& address) const {
    const auto there = address_of(address, port);
    UniqueFd client(::socket(there.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(client.value(), reinterpret_cast<const sockaddr*>(&there), sizeof there), 0);
    return client;
  }
  Accepted accept() const {
    Accepted result;
    socklen_t size = sizeof result.peer;
    result.socket = UniqueFd(::accept(socket.value(), reinterpret_cast<sockaddr*>(&result.peer), &size));
    size = sizeof result.own;
    getsockname(result.socket.value(), reinterpret_cast<sockaddr*>(&result.own), &size);
    return result;
  }

  UniqueFd socket;
  uint16_t port = 0;
};

class PeerUser : public testing::TestWithParam<PeerUsers::Source> {
 protected:
  const PeerUsers users_{GetParam()};
};

TEST_P(PeerUser, IsKnownOverEachKindOfAddress) {
  const std::pair<const char*, const char*> cases[] = {
      {"127.0.0.1", "127.0.0.1"}, {"0.0.0.0", "127.0.0.2"}, {"::", "127.0.0.1"}, {"::", "::1"}, {"::1", "::1"}};
  for (const auto& [bound, named] : cases) {
    const Listener listener(bound);
    const auto client = listener.connect_to(named);
    const auto accepted = listener.accept();
    const auto peer = users_.look_up(accepted.peer, accepted.own);
    EXPECT_EQ(peer.kind, Peer::Kind::kUser) << bound << " " << named;
    EXPECT_EQ(peer.uid, geteuid());
  }
}

TEST_P(PeerUser, IsTheOneWhoMadeTheSocketOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const Listener listener("127.0.0.1");
  auto end = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    end.write_end.reset();
    if (setuid(65'534) != 0) _exit(1);
    const auto client = listener.connect_to("127.0.0.1");
    char byte = 0;
    _exit(read(end.read_end.value(), &byte, 1) == 0 ? 0 : 1);
  }
  const auto accepted = listener.accept();
  const auto peer = users_.look_up(accepted.peer, accepted.own);
  EXPECT_EQ(peer.kind, Peer::Kind::kUser);
  EXPECT_EQ(peer.uid, 65'534U);
  end.write_end.reset();
  waitpid(child, nullptr, 0);
}

// The kernel then says 0 for the user, who must not pass for root.
TEST_P(PeerUser, IsNotKnownAfterItHasClosedItsEnd) {
  const Listener listener("127.0.0.1");
  listener.connect_to("127.0.0.1");
  const auto waits = listener.accept();
  EXPECT_EQ(users_.look_up(waits.peer, waits.own).kind, Peer::Kind::kGone) << "its last bytes can be read";
  const linger reset{1, 0};
  {
    const auto client = listener.connect_to("127.0.0.1");
    setsockopt(client.value(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  const auto accepted = listener.accept();
  EXPECT_NE(users_.look_up(accepted.peer, accepted.own).kind, Peer::Kind::kUser) << "nothing of it is left";
}

TEST_P(PeerUser, OfAnotherHostIsNotKnown) {
  const auto peer = address_of("192.0.2.1", 4000), own = address_of("192.0.2.2", 5000);
  EXPECT_EQ(users_.look_up(peer, own).kind, Peer::Kind::kElsewhere);
}

INSTANTIATE_TEST_SUITE_P(By, PeerUser, testing::Values(PeerUsers::Source::kNetlink, PeerUsers::Source::kFiles),
                         [](const auto& one) {
                           return one.param == PeerUsers::Source::kNetlink ? "Netlink" : "Files";
                         });

}  // namespace
}  // namespace yoke::launch
