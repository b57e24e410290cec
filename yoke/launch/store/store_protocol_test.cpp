// The protocol is compared with torch's own client in tests/store, and its bytes are written out here for what that
// client does not do on demand: requests in portions, older clients, and processes that connect again.
#include "yoke/launch/store/store_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace yoke::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

template <typename T>
std::string number(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string text(const std::string& value) { return number<uint64_t>(value.size()) + value; }
std::string query(char code) { return std::string(1, code); }

const std::string kHello = query(0) + number<uint32_t>(0x3C85F7CE);
const std::string kStop(1, '\0'), kReady(1, '\0'), kNotReady(1, '\1'), kCanceled(1, '\1');

std::string set(const std::string& key, const std::string& value) { return query(1) + text(key) + text(value); }
std::string get(const std::string& key) { return query(3) + text(key); }
std::string add(const std::string& key, int64_t by) { return query(4) + text(key) + number(by); }
std::string check(const std::string& key) { return query(5) + number<uint64_t>(1) + text(key); }
std::string wait(const std::string& a, const std::string& b) {
  return query(6) + number<uint64_t>(2) + text(a) + text(b);
}
std::string ping(uint32_t pid) { return query(13) + number(pid); }

class Store : public testing::Test {
 protected:
  /// Connects a client of a process of this host; pid 0: a client that does not send it.
  void connect(int client, uint32_t pid = 0, const std::string& host = "127.0.0.1") {
    protocol_.connect(client, host);
    EXPECT_TRUE(protocol_.take(client, kHello));
    if (pid == 0) return;
    EXPECT_EQ(ask(client, ping(pid)), number(pid));
  }

  /// Returns what the client is told after it has sent `bytes`.
  std::string ask(int client, const std::string& bytes) {
    EXPECT_TRUE(protocol_.take(client, bytes));
    return told(client);
  }
  std::string told(int client) {
    for (auto& reply : protocol_.take_replies()) all_[reply.client] += reply.bytes;
    return std::exchange(all_[client], "");
  }

  StoreProtocol protocol_;
  std::map<int, std::string> all_;
};

TEST_F(Store, ASumThatDoesNotFitEndsTheConnection) {
  connect(1);
  EXPECT_EQ(ask(1, add("/n", INT64_MAX)), number(INT64_MAX));
  EXPECT_FALSE(protocol_.take(1, add("/n", 1)));
}

TEST_F(Store, AnswersEachQuery) {
  connect(1);
  EXPECT_EQ(ask(1, set("/a", "x")), "");
  EXPECT_EQ(ask(1, get("/a")), text("x"));
  EXPECT_EQ(ask(1, get("/none")), text(""));
  EXPECT_EQ(ask(1, add("/n", 3) + add("/n", -1)), number<int64_t>(3) + number<int64_t>(2));
  EXPECT_EQ(ask(1, check("/a") + check("/none")), kReady + kNotReady);
  EXPECT_EQ(ask(1, query(9) + text("/a") + text("yz")), "") << "append";
  EXPECT_EQ(ask(1, query(10) + number<uint64_t>(2) + text("/a") + text("/n")), text("xyz") + text("2"));
  EXPECT_EQ(ask(1, query(11) + number<uint64_t>(2) + text("/a") + text("1") + text("/b") + text("2")), "");
  EXPECT_EQ(ask(1, query(7)), number<int64_t>(3)) << "the number of keys";
  EXPECT_EQ(ask(1, query(8) + text("/b") + query(8) + text("/b")), number<int64_t>(1) + number<int64_t>(0));
  const auto exchange = [](const std::string& expected, const std::string& desired) {
    return query(2) + text("/a") + text(expected) + text(desired);
  };
  EXPECT_EQ(ask(1, exchange("1", "7") + exchange("1", "8")), text("7") + text("7"));
}

TEST_F(Store, ARequestMayComeInPortions) {
  connect(1);
  std::string bytes = set("/a", std::string(1000, 'v')) + get("/a"), answer;
  for (const char byte : bytes) answer += ask(1, std::string(1, byte));
  EXPECT_EQ(answer, text(std::string(1000, 'v')));
}

TEST_F(Store, AClientWaitsForAllOfItsKeys) {
  for (const int client : {1, 2}) connect(client);
  EXPECT_EQ(ask(1, wait("/a", "/b")), "");
  ask(2, set("/a", "1"));
  EXPECT_EQ(told(1), "");
  ask(2, add("/b", 1));
  EXPECT_EQ(told(1), kStop);
  EXPECT_EQ(ask(1, wait("/a", "/b")), kStop);
  EXPECT_EQ(ask(1, wait("/a", "/c") + query(12)), kCanceled);
  ask(2, set("/c", ""));
  EXPECT_EQ(told(1), "") << "it had given up";
  ask(1, wait("/d", "/e"));
  protocol_.disconnect(1);
  ask(2, set("/d", "") + set("/e", ""));
  EXPECT_THAT(protocol_.take_replies(), IsEmpty());
}

TEST_F(Store, OneElementOfAQueueIsForOneClient) {
  for (const int client : {1, 2, 3}) connect(client);
  const std::string wait_for_queue = query(6) + number<uint64_t>(1) + text("/q");
  for (const int client : {1, 2}) EXPECT_EQ(ask(client, wait_for_queue), "");
  ask(3, query(14) + text("/q") + text("x"));
  EXPECT_EQ(told(1), kStop);
  EXPECT_EQ(told(2), "");
  EXPECT_EQ(ask(1, query(16) + text("/q") + query(15) + text("/q") + query(15) + text("/q")),
            number<int64_t>(1) + number<int64_t>(1) + text("x") + number<int64_t>(0));
}

TEST_F(Store, ABarrierOpensForTheLast) {
  for (const int client : {1, 2}) connect(client);
  const std::string barrier = query(18) + text("/b") + number<int64_t>(2);
  EXPECT_EQ(ask(1, barrier), "");
  EXPECT_EQ(ask(2, barrier), kStop);
  EXPECT_EQ(told(1), kStop);
}

// A process that leaves its default group and makes another one uses the same keys again. Ranks do this at different
// times: here rank 1 is in its second group while rank 0 has not left the first one.
TEST_F(Store, ASecondDefaultGroupReadsNothingOfTheFirst) {
  const std::string key = "/default_pg/0//cpu//0/rank_1";
  connect(1, 100);
  connect(2, 200);
  ask(2, set(key, "first"));
  EXPECT_EQ(ask(1, get(key)), text("first"));
  protocol_.disconnect(2);
  connect(3, 200);
  EXPECT_EQ(ask(3, check(key)), kNotReady);
  ask(3, set(key, "second"));
  EXPECT_EQ(ask(1, get(key)), text("first"));
  protocol_.disconnect(1);
  connect(4, 100);
  EXPECT_EQ(ask(4, get(key)), text("second"));
}

TEST_F(Store, OnlyTheEndOfAllConnectionsOfAGroupIsItsEnd) {
  const std::string key = "/default_pg/0//worker";
  connect(1, 100);
  ask(1, set(key, "x"));
  connect(2, 100);  // NCCL's watchdog has a connection of its own
  EXPECT_EQ(ask(2, get(key)), text("x"));
  protocol_.disconnect(1);
  connect(3, 100);
  EXPECT_EQ(ask(3, get(key)), text("x")) << "client 2 still serves the group";
}

TEST_F(Store, KeysOfUsersAreKept) {
  connect(1, 100);
  ask(1, set("/mine", "x") + set("/default_pg/a", "y"));
  protocol_.disconnect(1);
  connect(2, 100);
  EXPECT_EQ(ask(2, get("/mine")), text("x"));
  EXPECT_EQ(ask(2, check("/default_pg/a")), kNotReady);
  connect(3, 100, "10.0.0.2");  // the same number on another host
  EXPECT_EQ(ask(3, get("/default_pg/a")), text("y"));
}

// torch up to 2.0 begins with a query and has no kValidate, so its numbers up to 6 are smaller by one.
TEST_F(Store, OlderClientsAreUnderstood) {
  protocol_.connect(1, "127.0.0.1");
  const auto older = [](std::string request) {
    --request[0];
    return request;
  };
  EXPECT_EQ(ask(1, older(set("/a", "x"))), "");
  EXPECT_EQ(ask(1, older(get("/a")) + older(add("/n", 2)) + older(wait("/a", "/n"))),
            text("x") + number<int64_t>(2) + kStop);
  EXPECT_EQ(ask(1, query(8) + text("/a")), number<int64_t>(1)) << "delete";
}

TEST_F(Store, OtherProgramsAreRefused) {
  const std::vector<std::string> requests = {
      "GET / HTTP/1.1\r\n\r\n",
      std::string(100, '\xff'),
      kHello + query(99),
      kHello + query(1) + number<uint64_t>(1 << 20),                  // a key of a megabyte
      kHello + query(1) + text("/a") + number<uint64_t>(1ULL << 60),  // a value that no memory holds
      kHello + set("/a", "x") + add("/a", 1),                         // not a number
      kHello + query(6) + number<uint64_t>(UINT64_MAX),
  };
  int client = 0;
  for (const auto& request : requests) {
    protocol_.connect(++client, "127.0.0.1");
    EXPECT_FALSE(protocol_.take(client, request)) << request;
    protocol_.disconnect(client);
  }
}

}  // namespace
}  // namespace yoke::launch
