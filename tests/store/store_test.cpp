// Tests the store that a launcher serves, with torch's client. All ranks are clients.
#include "yoke/dist/detail/store.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <functional>
#include <future>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/launch/process/master_port.h"
#include "yoke/launch/store/store_server.h"

namespace yoke {
namespace {

using test::Command;
using testing::HasSubstr;

/// A running store, as the guardian of a launcher starts it.
struct Served {
  explicit Served(const std::string& address = "127.0.0.1") : master(launch::take_master_port(address, std::nullopt)) {
    listen(master.socket.value(), SOMAXCONN);
    pid = fork();
    if (pid == 0) {
      input.write_end.reset();
      launch::serve_store(std::move(master.socket), std::move(input.read_end));
    }
    master.socket.reset();
    input.read_end.reset();
  }
  ~Served() {
    kill(pid, SIGKILL);
    if (!has_ended) waitpid(pid, nullptr, 0);
  }

  int wait() {
    has_ended = true;
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
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

  c10::intrusive_ptr<c10d::TCPStore> connect() const {
    c10d::TCPStoreOptions options;
    options.port = master.port;
    options.waitWorkers = false;
    options.timeout = std::chrono::seconds(20);
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }

  Pipe input = make_pipe();
  launch::MasterPort master;
  pid_t pid = -1;
  bool has_ended = false;
};

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

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

TEST(Store, EndsWithThePipe) {
  Served served;
  dist::connect_store(served.rank(0, 2), std::chrono::seconds(20))->set("key", std::string("value"));
  served.input.write_end.reset();
  EXPECT_EQ(served.wait(), 0);
}

TEST(Store, WhatComesThroughThePipeIsNoEnd) {
  Served served;
  ASSERT_EQ(write(served.input.write_end.value(), "hello", 5), 5);
  dist::connect_store(served.rank(0, 2), std::chrono::seconds(20))->set("key", std::string("value"));
}

// torch's own server is the oracle: both answer the same calls of torch's client alike.
TEST(Store, AnswersAsTorchsServerDoes) {
  Served served;
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto theirs = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const auto ours = served.connect();
  const auto outcome = [](const auto& call) -> std::string {
    try {
      return call();
    } catch (const std::exception& error) {
      return "error";
    }
  };
  const auto text = [](const std::vector<uint8_t>& value) { return std::string(value.begin(), value.end()); };
  const std::vector<std::function<std::string(c10d::TCPStore&)>> calls = {
      [&](auto& store) { return store.set("a", bytes("1")), text(store.get("a")); },
      [&](auto& store) { return fmt::format("{} {}", store.add("n", 5), store.add("n", -7)); },
      [&](auto& store) { return text(store.get("n")); },
      [&](auto& store) {
        return fmt::format("{} {}", store.check({"a", "n"}), store.check({"a", "none"}));
      },
      [&](auto& store) { return store.append("a", bytes("23")), text(store.get("a")); },
      [&](auto& store) { return text(store.compareSet("a", bytes("123"), bytes("x"))) + text(store.get("a")); },
      [&](auto& store) { return text(store.compareSet("a", bytes("y"), bytes("z"))); },
      [&](auto& store) { return text(store.compareSet("new", bytes(""), bytes("z"))); },
      [&](auto& store) { return text(store.compareSet("none", bytes("y"), bytes("z"))); },
      [&](auto& store) {
        return store.multiSet({"b", "c"}, {bytes("4"), bytes("")}), fmt::format("{}", store.getNumKeys());
      },
      [&](auto& store) {
        const auto values = store.multiGet({"b", "c", "n"});
        return text(values[0]) + "," + text(values[1]) + "," + text(values[2]);
      },
      [&](auto& store) { return fmt::format("{} {}", store.deleteKey("b"), store.deleteKey("b")); },
      [&](auto& store) {
        return store.wait({"none", "a"}, std::chrono::milliseconds(50)), "found";
      },
      [&](auto& store) { return text(store.get("a")) + " after a wait that was given up"; },
      [&](auto& store) {
        return store.set("big", std::vector<uint8_t>(5 << 20, 'v')), fmt::format("{}", store.get("big").size());
      },
      [&](auto& store) {
        return store.queuePush("q", bytes("e")),
               fmt::format("{}", store.queueLen("q")) + text(store.queuePop("q", true));
      },
      [&](auto& store) { return text(store.queuePop("q", false)); },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(outcome([&] { return calls[i](*ours); }), outcome([&] { return calls[i](*theirs); })) << "call " << i;
  }
}

TEST(Store, AClientWaitsForAnother) {
  Served served;
  const auto waiting = served.connect(), setting = served.connect();
  auto value = std::async(std::launch::async, [&] { return waiting->get("late"); });
  setting->set("late", bytes("x"));
  EXPECT_EQ(value.get(), bytes("x"));
}

// This is what PyTorch's init_process_group, destroy_process_group and init_process_group do in one process.
TEST(Store, ASecondDefaultGroupOfAProcessBeginsEmpty) {
  Served served;
  const auto group = [&] { return c10::make_intrusive<c10d::PrefixStore>("default_pg", served.connect()); };
  group()->set("rank_0", bytes("old"));
  EXPECT_FALSE(group()->check({"rank_0"}));
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

}  // namespace
}  // namespace yoke
