// Ranks that are threads which share one mapping, so that TSan sees all that they do with the memory.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "yoke/dist/shared/engine.h"
#include "yoke/dist/shared/links.h"

namespace yoke::dist::shared {

/// Everything wraps around often.
inline Layout tiny(int64_t num_ranks) {
  return {.num_ranks = num_ranks,
          .slot_bytes = 64 * num_ranks,
          .num_slots = 3,
          .chunk_bytes = 64 * num_ranks,
          .num_chunks = 2,
          .channel_bytes = 256};
}

/// Ranks of several hosts, each of which has a memory of its own.
inline void run_hosts(const Layout& layout, const Hosts& hosts,
                      const std::function<void(Engine& engine, int64_t rank)>& body,
                      std::chrono::milliseconds patience = std::chrono::milliseconds(50)) {
  std::vector<std::shared_ptr<Segment>> segments;
  for (size_t host = 0; host < hosts.size(); ++host) {
    UniqueFd file;
    segments.push_back(Segment::create(layout, file));
  }
  std::barrier<> all(layout.num_ranks);
  std::vector<std::string> addresses(static_cast<size_t>(layout.num_ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < layout.num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto segment = segments[host_of(hosts, rank)];
      Links links;
      if (hosts.size() > 1) {
        Listener listener("127.0.0.1");
        addresses[static_cast<size_t>(rank)] = listener.address();
        all.arrive_and_wait();
        links = connect_hosts(listener, {.rank = rank,
                                         .hosts = hosts,
                                         .addresses = addresses,
                                         .segment = segment.get(),
                                         .until = Clock::now() + std::chrono::seconds(60)});
      }
      Engine engine(segment, {.rank = rank, .mismatch_patience = patience}, std::move(links));
      body(engine, rank);
      all.arrive_and_wait();  // as World::shutdown() does
    });
  }
  for (auto& thread : threads) thread.join();
}

/// Every other rank is on the second host.
inline Hosts two_hosts(int64_t num_ranks) {
  Hosts hosts(2);
  for (int64_t rank = 0; rank < num_ranks; ++rank) hosts[static_cast<size_t>(rank % 2)].push_back(rank);
  return hosts;
}

/// On one host, and on two.
inline void run_engines(const Layout& layout, const std::function<void(Engine& engine, int64_t rank)>& body,
                        std::chrono::milliseconds patience = std::chrono::milliseconds(50)) {
  for (const auto& hosts :
       {hosts_of(std::vector<std::string>(static_cast<size_t>(layout.num_ranks))), two_hosts(layout.num_ranks)}) {
    SCOPED_TRACE(hosts.size() == 1 ? "on one host" : "on two hosts");
    run_hosts(layout, hosts, body, patience);
  }
}

struct Pending {
  std::shared_ptr<Transfer> transfer = std::make_shared<Transfer>();
  std::shared_ptr<std::exception_ptr> error = std::make_shared<std::exception_ptr>();

  std::string wait(Engine& engine) const {
    EXPECT_TRUE(engine.wait(transfer, Clock::time_point::max()));
    if (!*error) return "";
    try {
      std::rethrow_exception(*error);
    } catch (const std::exception& exception) {
      return exception.what();
    }
  }
};

inline Pending start(Engine& engine, Pending pending, Driver driver, std::chrono::milliseconds timeout) {
  pending.transfer->on_end = [error = pending.error](std::exception_ptr given) { *error = std::move(given); };
  pending.transfer->deadline = Clock::now() + timeout;
  engine.start(pending.transfer, driver);
  return pending;
}

inline Pending start(Engine& engine, std::unique_ptr<Exchange> exchange, Driver driver = Driver::kEngine,
                     std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  Pending pending;
  pending.transfer->exchange = std::move(exchange);
  return start(engine, std::move(pending), driver, timeout);
}

inline Pending start(Engine& engine, const Message& message,
                     std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  Pending pending;
  pending.transfer->message = message;
  return start(engine, std::move(pending), Driver::kWaiter, timeout);
}

}  // namespace yoke::dist::shared
