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

inline void run_engines(const Layout& layout, const std::function<void(Engine& engine, int64_t rank)>& body,
                        std::chrono::milliseconds patience = std::chrono::milliseconds(50)) {
  UniqueFd file;
  const auto segment = Segment::create(layout, file);
  std::barrier<> all(layout.num_ranks);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < layout.num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Engine engine(segment, {.rank = rank, .mismatch_patience = patience});
      body(engine, rank);
      all.arrive_and_wait();  // as World::shutdown() does
    });
  }
  for (auto& thread : threads) thread.join();
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
