// The protocol is compared with torch's own client in tests/store, and its bytes are written out here for what that
// client does not do on demand: requests in portions, older clients, and processes that connect again.
#include "yoke/launch/store/store_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

#include "yoke/launch/store/store_requests_test.h"

namespace yoke::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

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

  explicit Store(int64_t limit_bytes = INT64_MAX) : protocol_(limit_bytes) {}

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

/// A store that keeps at most 2,000 bytes. Each request here takes some hundreds while it is kept.
class SmallStore : public Store {
 protected:
  SmallStore() : Store(2000) {
    connect(1);
    connect(2);
  }
  std::string ask(int client, const std::string& bytes) {
    auto answer = Store::ask(client, bytes);
    protocol_.release(static_cast<int64_t>(answer.size()));  // it was sent
    return answer;
  }
};

TEST_F(SmallStore, RefusesWhatDoesNotFit) {
  ask(1, set("/a", std::string(900, 'x')));
  EXPECT_FALSE(protocol_.is_full());
  EXPECT_FALSE(protocol_.take(2, set("/b", std::string(500, 'x'))));
  EXPECT_TRUE(protocol_.is_full());
  protocol_.disconnect(2);
  EXPECT_EQ(ask(1, check("/a") + check("/b")), kReady + kNotReady);
  EXPECT_FALSE(protocol_.take(1, query(9) + text("/a") + text(std::string(600, 'x')))) << "append";
}

TEST_F(SmallStore, RefusesManySmallThings) {
  const std::vector<std::function<std::string(int)>> requests = {
      [](int i) { return set(std::to_string(i), ""); },
      [](int i) { return add(std::to_string(i), 1); },
      [](int i) { return query(14) + text("/q") + text(std::to_string(i)); },
      [](int i) { return wait("/x", std::to_string(i)); },
      [](int) { return query(1) + number<uint64_t>(8000) + "part of a key"; },
  };
  for (size_t which = 0; which < requests.size(); ++which) {
    StoreProtocol protocol(2000);
    int num_taken = 0;
    for (bool is_taken = true; is_taken && num_taken < 1000; ++num_taken) {
      if (!protocol.take_replies().empty()) continue;
      if (num_taken == 0) protocol.connect(1, "127.0.0.1");
      is_taken = protocol.take(1, (num_taken == 0 ? kHello : "") + requests[which](num_taken));
    }
    EXPECT_LT(num_taken, 300) << "request " << which;
    EXPECT_TRUE(protocol.is_full());
  }
}

TEST_F(SmallStore, WhatIsTakenBackIsFree) {
  for (int i = 0; i < 100; ++i) {
    ask(1, set("/a", std::string(300, 'x')) + set("/a", std::string(200, 'x')) + query(9) + text("/a") + text("yz"));
    ask(1, query(8) + text("/a"));
    ask(1, query(14) + text("/q") + text(std::string(300, 'x')) + query(15) + text("/q"));
    ask(1, wait("/b", "/c") + query(12));
    ask(1, wait("/b", "/c"));
    ask(2, add("/b", 1) + set("/c", "1") + query(8) + text("/b") + query(8) + text("/c"));
    protocol_.release(static_cast<int64_t>(told(1).size()));
    ask(1, query(6) + number<uint64_t>(1) + text("/q"));
    ask(2, query(14) + text("/q") + text("") + query(15) + text("/q"));
    protocol_.release(static_cast<int64_t>(told(1).size()));
    protocol_.connect(3, "127.0.0.1");
    EXPECT_TRUE(protocol_.take(3, kHello + wait("/b", "/c") + query(1)));
    protocol_.disconnect(3);
  }
  EXPECT_EQ(ask(1, set("/a", std::string(900, 'x')) + check("/a")), kReady);
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
