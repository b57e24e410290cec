#include "yoke/cluster/reach.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/forked_process.h"
#include "tests/support/message_of.h"
#include "yoke/base/file.h"
#include "yoke/cluster/resident.h"
#include "yoke/launch/node/handshake.h"

namespace yoke::cluster {
namespace {

using test::message_of;
using testing::Contains;

Allocation two_nodes() {
  return {.job = "12",
          .name = "debug",
          .secret = "0123",
          .yoke = "/opt/yoke",
          .nodes = {{"n1", "10.77.0.11", 4711, 2, 8}, {"n2", "n2.example.org", 0, 0, 8}}};
}

/// A process that listens where a resident agent could, and talks with its first caller.
class Peer {
 public:
  explicit Peer(const std::function<void(const UniqueFd& caller)>& talk)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.value(), generic, size), 0);
    EXPECT_EQ(listen(listener_.value(), 1), 0);
    EXPECT_EQ(getsockname(listener_.value(), generic, &size), 0);
    port_ = ntohs(address.sin_port);
    process_.emplace([&] {
      const UniqueFd caller(accept4(listener_.value(), nullptr, nullptr, SOCK_CLOEXEC));
      talk(caller);
      shutdown(caller.value(), SHUT_WR);
      test::read_to_end(caller.value());
      return 0;
    });
  }
  AllocationNode node() const { return {.name = "n1", .address = "127.0.0.1", .port = port_}; }

 private:
  UniqueFd listener_;
  uint16_t port_ = 0;
  std::optional<test::ForkedProcess> process_;
};

/// What has arrived by now, or else what arrives next.
std::string read_some(const UniqueFd& fd) {
  char buffer[4096];
  const auto count = read(fd.value(), buffer, sizeof buffer);
  return {buffer, static_cast<size_t>(std::max<ssize_t>(0, count))};
}

TEST(Reach, SaysWhichNodesDoNotAnswer) {
  auto allocation = two_nodes();
  allocation.nodes = {{"n1", "127.0.0.1", 1, 0, 1}, {"n2", "no-such-host.invalid", 1, 0, 1}};
  const auto reached = reach(allocation, allocation.nodes);
  EXPECT_EQ(reached[0].kind, Reached::Kind::kRefused);
  EXPECT_EQ(reached[0].why, "Connection refused");
  EXPECT_EQ(reached[1].kind, Reached::Kind::kUnreachable);
}

TEST(Reach, BySrunIsUnbufferedAndBesideOtherSteps) {
  const auto words = srun_agent_command(two_nodes(), "n2");
  for (const auto* one :
       {"--jobid=12", "--overlap", "--nodelist=n2", "--unbuffered", "YOKE_NODE_ADDRESS=n2.example.org", "/opt/yoke"}) {
    EXPECT_THAT(words, Contains(one));
  }
  EXPECT_EQ(words.back(), "agent");
}

// Ports are taken by others when an agent has ended, and the secret must not be believed to be known there.
TEST(Reach, RefusesWhoeverHasTakenThePort) {
  const std::string greeting = "yoke/1 head\n" + std::string(32, 'r');
  const std::string closed = "what listens there closed the connection",
                    unknown = "what listens there does not know the secret of the allocation";
  struct Row {
    std::string first, then, why;
  };
  for (const auto& [first, then, why] : std::vector<Row>{{"", "", closed},
                                                         {"yoke/1 he", "", closed},
                                                         {greeting, "y", closed},
                                                         {"SSH-2.0-OpenSSH_9.2\r\n", "", unknown},
                                                         {"HTTP/1.1 400 Bad Request\r\n\r\n", "", unknown},
                                                         {greeting, "n", unknown},
                                                         {greeting, "y" + std::string(32, 'p'), unknown},
                                                         {greeting + "y" + std::string(32, 'p'), "", unknown}}) {
    const Peer impostor([&first = first, &then = then](const UniqueFd& caller) {
      write_all(caller.value(), first, "the caller");
      if (!then.empty() && !read_some(caller).empty()) write_all(caller.value(), then, "the caller");
    });
    const auto reached = std::move(reach(two_nodes(), {impostor.node()}).front());
    EXPECT_EQ(reached.kind, Reached::Kind::kRefused) << first << then;
    EXPECT_EQ(reached.why, why) << first << then;
    EXPECT_FALSE(reached.socket);
  }
}

TEST(Reach, LeavesWhatFollowsTheGreeting) {
  const Peer resident([](const UniqueFd& caller) {
    launch::Handshake handshake(launch::Handshake::Side::kHead, two_nodes().secret, handshake_id(two_nodes().job));
    std::string received, to_send;
    while (handshake.state() == launch::Handshake::State::kTalking) {
      handshake.feed(received, to_send);
      if (handshake.state() == launch::Handshake::State::kDone) to_send += "the agent's first message";
      write_all(caller.value(), std::exchange(to_send, ""), "the caller");
      received += read_some(caller);
    }
  });
  const auto reached = std::move(reach(two_nodes(), {resident.node()}).front());
  ASSERT_EQ(reached.kind, Reached::Kind::kConnected) << reached.why;
  shutdown(reached.socket.value(), SHUT_WR);
  EXPECT_EQ(test::read_to_end(reached.socket.value()), "the agent's first message");
}

TEST(Reach, OfNodesThatAreUnknownIsRefused) {
  OpenAllocation open{.allocation = two_nodes(), .transport = Transport::kSrun};
  EXPECT_EQ(message_of(
                [&] {
                  open.take_hosts({"n1", "n9"});
                },
                ErrorCode::kNotFound),
            "n9 is no node of allocation 12; it has n1, n2");
  EXPECT_THAT(srun_agent_command(two_nodes(), "n9"), Contains("YOKE_NODE_ADDRESS=n9"));
}

}  // namespace
}  // namespace yoke::cluster
