// The server as a guardian starts it: whose connections it serves, and how much it keeps. Its answers are tested beside
// store_protocol.h and, with torch's own client, in tests/store.
#include "yoke/launch/store/store_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "yoke/base/process.h"
#include "yoke/launch/store/store_requests_test.h"

namespace yoke::launch {
namespace {

const std::string kNumKeys = query(7);

class StoreServer : public testing::Test {
 protected:
  void serve(std::function<bool(uid_t)> may_use, int64_t limit_bytes = int64_t{1} << 20) {
    UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(bind(listener.value(), reinterpret_cast<sockaddr*>(&address_), sizeof address_), 0);
    ASSERT_EQ(listen(listener.value(), SOMAXCONN), 0);
    socklen_t size = sizeof address_;
    getsockname(listener.value(), reinterpret_cast<sockaddr*>(&address_), &size);
    server_ = fork();
    if (server_ == 0) {
      end_.write_end.reset();
      serve_store(
          std::move(listener), std::move(end_.read_end),
          {.may_use = std::move(may_use), .limit_bytes = limit_bytes, .reports = std::move(reports_.write_end)});
    }
    reports_.write_end.reset();
    end_.read_end.reset();
  }
  ~StoreServer() override {
    end_.write_end.reset();
    if (server_ > 0) waitpid(server_, nullptr, 0);
  }

  UniqueFd connect_to_it() const {
    UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(client.value(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    return client;
  }
  /// Returns the number of keys that a client sees, or -1 if its connection is closed.
  static int64_t num_keys(const UniqueFd& client, const std::string& before = "") {
    const auto request = before + kNumKeys;
    if (send(client.value(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return -1;
    int64_t count = -1;
    return recv(client.value(), &count, sizeof count, MSG_WAITALL) == sizeof count ? count : -1;
  }
  StoreReport next_report() const {
    StoreReport report;
    EXPECT_EQ(read(reports_.read_end.value(), &report, sizeof report), static_cast<ssize_t>(sizeof report));
    return report;
  }

  sockaddr_in address_{};
  Pipe end_ = make_pipe(), reports_ = make_pipe();
  pid_t server_ = -1;
};

TEST_F(StoreServer, ServesThoseWhoMay) {
  serve([](uid_t uid) { return uid == geteuid(); });
  EXPECT_EQ(num_keys(connect_to_it(), kHello + set("/a", "x")), 1);
}

TEST_F(StoreServer, ReadsNothingOfThoseWhoMayNot) {
  serve([](uid_t uid) { return uid != geteuid(); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(num_keys(connect_to_it(), kHello), -1);
  const auto report = next_report();
  EXPECT_EQ(report.kind, StoreReport::Kind::kRefusedUser);
  EXPECT_EQ(report.value, static_cast<int64_t>(geteuid()));
  end_.write_end.reset();
  waitpid(std::exchange(server_, -1), nullptr, 0);
  StoreReport more;
  EXPECT_EQ(read(reports_.read_end.value(), &more, sizeof more), 0) << "a user is reported once";
}

TEST_F(StoreServer, ReadsNothingOfOneThatHasClosedItsEnd) {
  serve([](uid_t) { return true; });
  kill(server_, SIGSTOP);
  waitpid(server_, nullptr, WUNTRACED);
  {
    const auto gone = connect_to_it();
    const auto request = kHello + set("/a", "x");
    ASSERT_EQ(send(gone.value(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  }
  const auto client = connect_to_it();
  kill(server_, SIGCONT);
  EXPECT_EQ(num_keys(client, kHello), 0);
}

TEST_F(StoreServer, ClosesTheConnectionOfAClientThatWantsMoreThanItsLimit) {
  serve(nullptr, 1 << 20);
  const auto first = connect_to_it();
  EXPECT_EQ(num_keys(first, kHello + set("/a", std::string(500'000, 'x'))), 1);
  EXPECT_EQ(num_keys(connect_to_it(), kHello + set("/b", std::string(700'000, 'x'))), -1);
  const auto report = next_report();
  EXPECT_EQ(report.kind, StoreReport::Kind::kFull);
  EXPECT_EQ(report.value, 1 << 20);
  EXPECT_EQ(num_keys(first), 1) << "others go on";
  // Replies that are not read yet count, too: here a client asks a thousand times for half a megabyte.
  const auto greedy = connect_to_it();
  std::string request = kHello;
  for (int i = 0; i < 1000; ++i) request += get("/a");
  ASSERT_EQ(send(greedy.value(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  EXPECT_EQ(num_keys(first), 1);
  EXPECT_EQ(num_keys(connect_to_it(), kHello), 1) << "what was kept for the greedy one is free again";
}

}  // namespace
}  // namespace yoke::launch
