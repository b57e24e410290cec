// Tests yoke-store as a launcher starts it: with a bound socket, and a pipe as standard input. All ranks are clients.
#include "yoke/dist/detail/store.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/launch/process/master_port.h"

namespace yoke {
namespace {

using test::Command;
using testing::HasSubstr;

/// A running store, and the file descriptors that its launcher keeps open.
struct Served {
  explicit Served(const std::string& address = "127.0.0.1") : master(launch::take_master_port(address, std::nullopt)) {
    const int fd = master.socket.value();
    fcntl(fd, F_SETFD, 0);
    command.emplace(
        test::CommandOptions{.argv = {YOKE_STORE, "--fd", std::to_string(fd)}, .input_fd = input.read_end.value()});
    master.socket.reset();  // only the store keeps the port from now on
    input.read_end.reset();
  }

  RankEnv rank(int64_t number, int64_t size, int64_t restart_count = 0) const {
    RankEnv env;
    env.rank = env.local_rank = number;
    env.world_size = env.local_world_size = size;
    env.master_port = master.port;
    env.agent_serves_store = true;
    env.restart_count = restart_count;
    return env;
  }

  Pipe input = make_pipe();
  launch::MasterPort master;
  std::optional<Command> command;
};

std::unique_ptr<Command> start_rank(const RankEnv& rank) {
  return std::make_unique<Command>(
      test::CommandOptions{.argv = {YOKE_RANK_PROGRAM, "sum"},
                           .environment = {{"RANK", std::to_string(rank.rank)},
                                           {"LOCAL_RANK", std::to_string(rank.rank)},
                                           {"WORLD_SIZE", std::to_string(rank.world_size)},
                                           {"LOCAL_WORLD_SIZE", std::to_string(rank.world_size)},
                                           {"MASTER_ADDR", "127.0.0.1"},
                                           {"MASTER_PORT", std::to_string(rank.master_port)},
                                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                           {"TORCHELASTIC_RESTART_COUNT", std::to_string(rank.restart_count)}}});
}

// One store serves all attempts of a job: here a second one with a different number of ranks.
TEST(Store, GangsOfOneJobMeetThereOneAfterAnother) {
  Served served;
  for (const int64_t restart : {0, 1, 2}) {
    const int64_t size = restart == 1 ? 3 : 2;
    std::vector<std::unique_ptr<Command>> ranks;
    for (int64_t rank = 0; rank < size; ++rank) ranks.push_back(start_rank(served.rank(rank, size, restart)));
    for (auto& rank : ranks) {
      const auto result = rank->wait();
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(result.out, HasSubstr(fmt::format("sum {}\n", size * (size + 1) / 2)));
    }
  }
}

TEST(Store, AnAttemptReadsNothingOfTheOneBefore) {
  Served served;
  const auto timeout = std::chrono::seconds(20);
  const auto first = dist::connect_store(served.rank(0, 2, 0), timeout);
  first->set("key", std::string("old"));
  EXPECT_TRUE(first->check({"key"}));
  EXPECT_FALSE(dist::connect_store(served.rank(0, 2, 1), timeout)->check({"key"}));
}

TEST(Store, EndsWithItsStandardInput) {
  Served served;
  dist::connect_store(served.rank(0, 2), std::chrono::seconds(20))->set("key", std::string("value"));
  served.input.write_end.reset();
  const auto result = served.command->wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out + result.err, "");
}

TEST(Store, WhatComesOnItsStandardInputIsNoEnd) {
  Served served;
  ASSERT_EQ(write(served.input.write_end.value(), "hello", 5), 5);
  dist::connect_store(served.rank(0, 2), std::chrono::seconds(20))->set("key", std::string("value"));
}

// A scheduler signals all processes of a job. The store must ignore that, because ranks use it while they save.
TEST(Store, SignalsAreForRanks) {
  Served served;
  const auto store = dist::connect_store(served.rank(0, 2), std::chrono::seconds(20));
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) served.command->signal(signal);
  store->set("key", std::string("value"));
  EXPECT_EQ(store->get("key").size(), 5U);
  served.input.write_end.reset();
  EXPECT_EQ(served.command->wait().exit_code, 0);
}

// A port scan or a different program that connects must be disconnected, and the ranks must still find each other.
TEST(Store, GarbageDoesNotEndIt) {
  Served served;
  const auto store = dist::connect_store(served.rank(0, 2), std::chrono::seconds(20));
  const UniqueFd stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(served.master.port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(stranger.value(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::string garbage(100'000, '\xff');
  send(stranger.value(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  store->set("key", std::string("value"));
  EXPECT_EQ(store->get("key").size(), 5U);
}

TEST(Store, ServesEveryAddressItWasBoundTo) {
  for (const auto* address : {"0.0.0.0", "::1", "::"}) {
    Served served(address);
    auto rank = served.rank(0, 2);
    rank.master_addr = address[0] == ':' ? "::1" : "127.0.0.1";
    dist::connect_store(rank, std::chrono::seconds(20))->set("key", std::string("value"));
  }
}

TEST(Store, RefusesWhatItCannotServe) {
  const auto refusal = [](const std::string& fd) {
    const auto result = test::run({.argv = {YOKE_STORE, "--fd", fd}});
    EXPECT_EQ(result.exit_code, 64) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal("999"), HasSubstr("yoke-store: descriptor 999 is not a socket: Bad file descriptor"));
  EXPECT_THAT(refusal("0"), HasSubstr("descriptor 0 is not a socket"));
  EXPECT_THAT(refusal("three"), HasSubstr("three is not a descriptor"));
  const UniqueFd unbound(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_THAT(refusal(std::to_string(unbound.value())), HasSubstr("is not bound to a port"));
  const UniqueFd local(socket(AF_UNIX, SOCK_STREAM, 0));
  EXPECT_THAT(refusal(std::to_string(local.value())), HasSubstr("not of TCP"));
  auto listening = launch::take_master_port("127.0.0.1", std::nullopt);
  fcntl(listening.socket.value(), F_SETFD, 0);
  ASSERT_EQ(listen(listening.socket.value(), 1), 0);
  EXPECT_THAT(refusal(std::to_string(listening.socket.value())), HasSubstr("listens already"));
  EXPECT_EQ(test::run({.argv = {YOKE_STORE}}).exit_code, 64);
}

}  // namespace
}  // namespace yoke
