#include "yoke/dist/shared/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/dist/shared/firewall_test.h"

namespace yoke::dist::shared {
namespace {

using testing::ElementsAre;

TEST(SharedLinks, RanksWithOneNameAreOnOneHost) {
  const auto hosts = hosts_of({"b", "a", "b", "c", "a", "b"});
  EXPECT_THAT(hosts, ElementsAre(ElementsAre(0, 2, 5), ElementsAre(1, 4), ElementsAre(3)));
  EXPECT_EQ(host_of(hosts, 4), 1U);
  EXPECT_EQ(host_of(hosts, 5), 0U);
}

TEST(SharedLinks, CarriersShareTheWork) {
  const Hosts hosts = {{0, 2, 5}, {1, 4}, {3}};
  EXPECT_EQ(carrier_of(hosts, 0, 1), 1);
  EXPECT_EQ(carrier_of(hosts, 2, 1), 4);
  EXPECT_EQ(carrier_of(hosts, 5, 1), 1);
  EXPECT_EQ(carrier_of(hosts, 3, 0), 0);
  EXPECT_EQ(carrier_of(hosts, 4, 0), 2);
  EXPECT_EQ(carrier_of(hosts, 4, 2), 3);
}

TEST(SharedLinks, ARankSeesWhoPassesOnWhat) {
  const Topology topology({{0, 2, 5}, {1, 4}, {3}}, 5);
  EXPECT_THAT(topology.here(), ElementsAre(0, 2, 5));
  EXPECT_TRUE(topology.is_here(2));
  EXPECT_EQ(topology.carrier_of(4), 2);
  EXPECT_THAT(topology.carriers(), ElementsAre(1, 3));
  EXPECT_THAT(topology.contributors(), ElementsAre(0, 1, 2, 3, 5));
  EXPECT_THAT(topology.carried(), ElementsAre()) << "the ranks of the others are fewer";
  EXPECT_THAT(Topology({{0, 2, 5}, {1, 4}, {3}}, 1).carried(), ElementsAre(0, 3, 5));
  const Topology alone(one_host(3), 1);
  EXPECT_THAT(alone.here(), ElementsAre(0, 1, 2));
  EXPECT_THAT(alone.carriers(), ElementsAre());
}

/// A rank for each of the two hosts of a group of two.
class TwoHosts : public testing::Test {
 protected:
  LinkOptions options(int64_t rank, std::chrono::milliseconds time = std::chrono::seconds(60)) const {
    return {.rank = rank,
            .hosts = {{0}, {1}},
            .addresses = {listeners_[0].address(), listeners_[1].address()},
            .segment = segment_.get(),
            .until = Clock::now() + time,
            .for_connectors = std::chrono::milliseconds(0)};
  }
  UniqueFd file_;
  std::shared_ptr<Segment> segment_ = Segment::create(layout_of(2), file_);
  Listener listeners_[2] = {Listener("127.0.0.1"), Listener("127.0.0.1")};
};

TEST_F(TwoHosts, ConnectAmongStrangers) {
  // Other users of the network connect first: one says nothing, the others the wrong thing.
  auto strangers = options(0);
  strangers.addresses[1].back() = strangers.addresses[1].back() == '0' ? '1' : '0';
  const std::string& address = listeners_[1].address();
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  where.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.find(' ') + 1))));
  const UniqueFd silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(silent.value(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  strangers.until = Clock::now();
  EXPECT_THROW(connect_hosts(listeners_[0], strangers), std::runtime_error);

  Links links[2];
  std::thread other([&] { links[1] = connect_hosts(listeners_[1], options(1)); });
  links[0] = connect_hosts(listeners_[0], options(0));
  other.join();
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto& own = links[rank];
    ASSERT_EQ(own.in.size(), 1U);
    ASSERT_EQ(own.out.size(), 1U);
    EXPECT_EQ(own.in[0].from, 1 - rank);
    EXPECT_THAT(own.out[0].ranks, ElementsAre(1 - rank));
    EXPECT_TRUE(own.topology->is_here(rank));
    EXPECT_EQ(own.topology->carrier_of(1 - rank), rank);
  }
  ASSERT_EQ(send(links[0].out[0].socket.value(), "x", 1, MSG_NOSIGNAL), 1);
  char letter = 0;
  while (recv(links[1].in[0].socket.value(), &letter, 1, 0) < 0 && errno == EAGAIN) std::this_thread::yield();
  EXPECT_EQ(letter, 'x');
}

TEST_F(TwoHosts, AnotherLayoutIsRefused) {
  UniqueFd file;
  const auto other = Segment::create(layout_of(3), file);
  auto wrong = options(0, std::chrono::milliseconds(200));
  wrong.segment = other.get();
  std::thread first([&] { EXPECT_THROW(connect_hosts(listeners_[0], wrong), std::runtime_error); });
  EXPECT_THROW(connect_hosts(listeners_[1], options(1, std::chrono::milliseconds(200))), std::runtime_error);
  first.join();
}

TEST_F(TwoHosts, WhoGivesNoAnswerIsKnown) {
  const Firewall firewall;
  auto blocked = options(0, std::chrono::milliseconds(300));
  blocked.addresses[1] = firewall.address();
  try {
    connect_hosts(listeners_[0], blocked);
    ADD_FAILURE();
  } catch (const NoAnswer& error) {
    EXPECT_EQ(error.host, 1U);
    EXPECT_STREQ(error.what(), "rank 1 at 127.0.0.1 gives no answer, as behind a firewall that drops packets");
  }
}

TEST_F(TwoHosts, TheWaitCanBeLeft) {
  auto waiting = options(0);
  waiting.check = [] { throw std::runtime_error("left"); };
  try {
    connect_hosts(listeners_[0], waiting);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "left");
  }
}

TEST(SharedLinks, BothKindsOfAddresses) {
  UniqueFd file;
  const auto segment = Segment::create(layout_of(2), file);
  for (const char* const address : {"127.0.0.1", "::1"}) {
    std::optional<Listener> listeners[2];
    try {
      for (auto& listener : listeners) listener.emplace(address);
    } catch (const Error&) {
      ASSERT_STREQ(address, "::1");
      return;  // this machine has no IPv6
    }
    std::thread threads[2];
    for (int64_t rank = 0; rank < 2; ++rank) {
      threads[rank] = std::thread([&, rank] {
        const LinkOptions options{.rank = rank,
                                  .hosts = {{0}, {1}},
                                  .addresses = {listeners[0]->address(), listeners[1]->address()},
                                  .segment = segment.get(),
                                  .until = Clock::now() + std::chrono::seconds(60)};
        EXPECT_EQ(connect_hosts(*listeners[rank], options).in.size(), 1U);
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace yoke::dist::shared
