#include "yoke/web/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/message_of.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::web {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// A server on a thread of the test.
class Served {
 public:
  explicit Served(std::function<Machine()> sample, ServerOptions options = {})
      : server_(
            [&] {
              options.address.port = 0;
              return options;
            }(),
            std::move(sample)),
        thread_([this] { server_.run(); }) {}
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() {
    server_.stop();
    thread_.join();
  }

  std::string url() const { return server_.url("/metrics"); }

  UniqueFd connect() const {
    const auto url = this->url();
    const auto colon = url.rfind(':');
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(url.substr(colon + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.value(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      throw system_error(errno, "connecting");
    }
    return fd;
  }

 private:
  Server server_;
  std::thread thread_;
};

void send_text(const UniqueFd& fd, std::string_view text) {
  while (!text.empty()) {
    const auto count = ::send(fd.value(), text.data(), text.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

/// Reads until the server closes the connection.
std::string receive(const UniqueFd& fd, milliseconds limit = seconds(60)) {
  std::string text;
  const auto until = Clock::now() + limit;
  while (Clock::now() < until) {
    pollfd poll_fd{fd.value(), POLLIN, 0};
    if (poll(&poll_fd, 1, 100) <= 0) continue;
    char buffer[65536];
    const auto count = recv(fd.value(), buffer, sizeof buffer, 0);
    if (count <= 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
  return text + "(still open)";
}

std::string ask(const Served& served, std::string_view request) {
  const auto fd = served.connect();
  send_text(fd, request);
  return receive(fd);
}

std::string get(const Served& served, const std::string& path) {
  return ask(served, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

Machine one_gpu() {
  Machine state;
  auto& snapshot = state.snapshot;
  snapshot.devices.push_back({.index = 0, .vendor = device::Vendor::kNvidia});
  snapshot.devices[0].readings.utilization_percent = 42;
  return state;
}

TEST(Server, ServesMetricsAndJson) {
  const Served served(one_gpu);
  EXPECT_THAT(served.url(), testing::MatchesRegex("http://127.0.0.1:[1-9][0-9]*/metrics"));
  const auto metrics = get(served, "/metrics");
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(metrics, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(metrics, HasSubstr("\nyoke_device_utilization_ratio{device=\"0\"} 0.42\n"));
  EXPECT_THAT(get(served, "/metrics?name=x"), StartsWith("HTTP/1.1 200 OK\r\n"));
  const auto json = get(served, "/devices.json");
  EXPECT_THAT(json, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(json, HasSubstr("\"utilization_percent\":42,"));
  const auto page = get(served, "/");
  EXPECT_THAT(page, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(page, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'; "));
  EXPECT_THAT(page, testing::Not(HasSubstr("Access-Control")));
  EXPECT_THAT(page, HasSubstr("<span>42%</span>"));
  EXPECT_THAT(get(served, "/live.html"), HasSubstr("\r\n\r\n<main id=\"live\""));
  EXPECT_THAT(get(served, "/day.html"), HasSubstr("\r\n\r\n<section id=\"day\""));
  EXPECT_THAT(get(served, "/api/state.json"), HasSubstr("\"claims\":null"));
  EXPECT_THAT(get(served, "/api/history.json"), HasSubstr("\"utilization_percent\":{\"min\":[42.0]"));
}

TEST(Server, RefusesTheRest) {
  const Served served(one_gpu);
  EXPECT_THAT(get(served, "/etc/passwd"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(get(served, "//metrics"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask(served, "DELETE /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask(served, "POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(ask(served, "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(ask(served, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(served, "GET /metrics HTTP/1.1\r\nHost: LOCALHOST.:80\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  for (const auto* path : {"/", "/live.html", "/api/state.json", "/devices.json"}) {
    EXPECT_THAT(ask(served, "GET " + std::string(path) + " HTTP/1.1\r\nHost: evil.example:19477\r\n\r\n"),
                StartsWith("HTTP/1.1 403 "));
  }
  EXPECT_THAT(ask(served, "\x16\x03\x01\x02hello, is this TLS?\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(served, "GET /metrics HTTP/1.1\r\nX: " + std::string(10'000, 'x') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(ask(served, "GET /" + std::string(1'000'000, 'x')), StartsWith("HTTP/1.1 431 "));
  const auto head = ask(served, "HEAD /metrics HTTP/1.0\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST(Server, OneSampleForAllWhoAskAtTheSameTime) {
  std::atomic<int> num_samples = 0;
  std::atomic<bool> have_asked = false;
  ServerOptions options;
  options.max_age = std::chrono::hours(1);  // so that requests that arrive late on a busy machine get the same sample
  const Served served(
      [&] {
        ++num_samples;
        have_asked.wait(false);  // stands for a slow driver
        return one_gpu();
      },
      options);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(served.connect());
    send_text(clients.back(), "GET /metrics HTTP/1.1\r\n\r\n");
  }
  have_asked = true;
  have_asked.notify_all();
  for (const auto& client : clients) EXPECT_THAT(receive(client), HasSubstr(" 200 OK"));
  EXPECT_EQ(num_samples, 1);
}

TEST(Server, AnOldSampleIsTakenAnew) {
  std::atomic<int> num_samples = 0;
  ServerOptions options;
  options.max_age = milliseconds(0);
  const Served served([&] { return ++num_samples, one_gpu(); }, options);
  get(served, "/metrics");  // may return the sample that the server takes at its start
  const int before = num_samples;
  get(served, "/metrics");
  get(served, "/metrics");
  EXPECT_EQ(num_samples, before + 2);
}

TEST(Server, AFailingSampleIsAnAnswer) {
  std::atomic<bool> is_failing = true;
  const Served served([&]() -> Machine {
    if (is_failing) throw Error(ErrorCode::kUnavailable, "no descriptors");
    return one_gpu();
  });
  EXPECT_THAT(get(served, "/metrics"), StartsWith("HTTP/1.1 503 "));
  is_failing = false;
  EXPECT_THAT(get(served, "/metrics"), StartsWith("HTTP/1.1 200 "));
}

TEST(Server, TheHistoryGrowsWithoutRequests) {
  std::atomic<int> num_samples = 0;
  ServerOptions options;
  options.max_age = milliseconds(0);
  options.history_interval = milliseconds(5);
  const Served served([&] { return ++num_samples, one_gpu(); }, options);
  const auto until = Clock::now() + seconds(30);
  while (num_samples < 5 && Clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_GE(num_samples, 5);
}

// With a timeout for each read, a client that sends a byte from time to time could stay for ever.
TEST(Server, AClientThatDripsIsCutOff) {
  ServerOptions options;
  options.request_deadline = milliseconds(300);
  const Served served(one_gpu, options);
  const auto client = served.connect();
  send_text(client, "GET /metrics HTTP/1.1\r\nX: ");
  const auto until = Clock::now() + seconds(60);
  pollfd poll_fd{client.value(), POLLIN, 0};
  while (poll(&poll_fd, 1, 20) == 0 && Clock::now() < until) send_text(client, "x");
  EXPECT_THAT(receive(client), IsEmpty()) << "or it is still open";
}

TEST(Server, SlowClientsDoNotKeepOthersOut) {
  ServerOptions options;
  options.max_connections = 8;
  options.request_deadline = std::chrono::hours(1);
  const Served served(one_gpu, options);
  std::vector<UniqueFd> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(served.connect());
    send_text(slow.back(), "GET /met");
  }
  EXPECT_THAT(get(served, "/metrics"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST(Server, MoreClientsThanConnectionsWaitForTheirTurn) {
  ServerOptions options;
  options.max_connections = 4;
  options.max_age = milliseconds(0);
  const Served served(
      [] {
        std::this_thread::sleep_for(milliseconds(20));  // clock: the work of a sample
        return one_gpu();
      },
      options);
  std::vector<std::thread> threads;
  threads.reserve(40);
  std::atomic<int> num_served = 0;
  for (int i = 0; i < 40; ++i) {
    threads.emplace_back([&] { num_served += get(served, "/metrics").starts_with("HTTP/1.1 200") ? 1 : 0; });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_served, 40);
}

TEST(Server, StopsWhileAnswering) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> is_sampling = false;
    std::vector<UniqueFd> clients;
    const Served served([&] {
      is_sampling = true;
      std::this_thread::sleep_for(milliseconds(5));  // clock: the work of a sample
      return one_gpu();
    });
    for (int n = 0; n < 10; ++n) {
      clients.push_back(served.connect());
      send_text(clients.back(), "GET /metrics HTTP/1.1\r\n\r\n");
    }
    while (!is_sampling) std::this_thread::yield();
  }
}

TEST(Server, ATakenPortIsAnErrorThatSaysSo) {
  const Served served(one_gpu);
  ServerOptions options;
  const auto url = served.url();
  options.address = parse_address(url.substr(7, url.size() - 7 - std::string_view("/metrics").size()));
  EXPECT_THAT(test::message_of([&] { Server(options, one_gpu); }, ErrorCode::kUnavailable),
              HasSubstr("is taken by process " + std::to_string(getpid()) + " of "));
  options.address = parse_address("192.0.2.1:9");  // an address from the range for documentation, which no machine has
  EXPECT_THROW(Server(options, one_gpu), Error);
}

}  // namespace
}  // namespace yoke::web
