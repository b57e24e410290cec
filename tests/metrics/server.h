// tests/metrics/server.h -- a server that a command runs, and clients.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_machine.h"

namespace yoke::test {

using Clock = std::chrono::steady_clock;

/// A client that sends its request and does not wait for the response.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_.value(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 && errno != EINPROGRESS)
      fd_.reset();
  }

  pollfd wish() const { return {fd_.value(), static_cast<short>(request_.empty() ? POLLIN : POLLOUT), 0}; }
  bool is_done() const { return !fd_; }
  void ask(std::string request) { request_ = std::move(request); }
  void hang_up() { fd_.reset(); }
  const std::string& response() const { return response_; }

  /// Whether a complete response with status 200 has arrived.
  bool is_served() const {
    const auto body = response_.find("\r\n\r\n");
    const auto length = response_.find("Content-Length: ");
    return response_.starts_with("HTTP/1.1 200 ") && body != response_.npos && length != response_.npos &&
           std::stoul(response_.substr(length + 16)) == response_.size() - body - 4;
  }

  void go_on() {
    char buffer[65536];
    const ssize_t count = request_.empty() ? recv(fd_.value(), buffer, sizeof buffer, 0)
                                           : send(fd_.value(), request_.data(), request_.size(), MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return fd_.reset();
    if (request_.empty()) {
      response_.append(buffer, static_cast<size_t>(count));
    } else {
      request_.erase(0, static_cast<size_t>(count));
    }
  }

 private:
  UniqueFd fd_;
  std::string request_, response_;
};

inline void serve_all(std::vector<Client>& clients, milliseconds limit = milliseconds(30'000)) {
  const auto until = Clock::now() + limit;
  while (Clock::now() < until) {
    std::vector<pollfd> wishes;
    std::vector<Client*> owners;
    for (auto& client : clients) {
      if (client.is_done()) continue;
      wishes.push_back(client.wish());
      owners.push_back(&client);
    }
    if (wishes.empty()) return;
    poll(wishes.data(), wishes.size(), 100);
    for (size_t i = 0; i < wishes.size(); ++i) {
      if (wishes[i].revents != 0) owners[i]->go_on();
    }
  }
}

/// Runs `yoke metrics --serve` on a free port.
class Server {
 public:
  explicit Server(const std::string& state, std::vector<std::string> more = {})
      : Server(options(state, std::move(more))) {}
  /// A command that serves and prints its URL.
  explicit Server(const CommandOptions& options) : command_(options) {
    EXPECT_TRUE(command_.wait_for_output("\n")) << command_.err();
    const auto colon = command_.out().rfind(':');
    port_ = static_cast<uint16_t>(std::stoi(command_.out().substr(colon + 1)));
  }

  Command& command() { return command_; }
  uint16_t port() const { return port_; }

  std::string ask(const std::string& request) const {
    std::vector<Client> clients;
    clients.emplace_back(port_);
    clients[0].ask(request);
    serve_all(clients);
    return clients[0].response();
  }
  std::string get(const std::string& path) const { return ask("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"); }

  /// Starts `count` scrapes at the same time, and returns how many got a response.
  int64_t scrape(size_t count) const {
    std::vector<Client> clients;
    for (size_t i = 0; i < count; ++i) {
      clients.emplace_back(port_);
      clients.back().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    serve_all(clients);
    return std::count_if(clients.begin(), clients.end(), [](const Client& client) { return client.is_served(); });
  }

  /// Returns the resident memory of the serving process: the command, or its child if a driver might hang.
  int64_t resident_kib() const {
    int64_t most = 0;
    auto pids = children_of(command_.pid());
    pids.push_back(command_.pid());
    for (const auto pid : pids) {
      std::ifstream status("/proc/" + std::to_string(pid) + "/status");
      for (std::string line; std::getline(status, line);) {
        if (line.starts_with("VmRSS:")) most = std::max<int64_t>(most, std::stoll(line.substr(6)));
      }
    }
    return most;
  }

 private:
  static CommandOptions options(const std::string& state, std::vector<std::string> more) {
    std::vector<std::string> words = {"metrics", "--serve", "127.0.0.1:0"};
    words.insert(words.end(), more.begin(), more.end());
    return on_machine(state, std::move(words));
  }

  Command command_;
  uint16_t port_ = 0;
};

}  // namespace yoke::test
