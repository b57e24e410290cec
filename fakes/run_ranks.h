// fakes/run_ranks.h -- ranks as threads of one process: real Gloo, a store in memory, no launcher.
#pragma once

#include <ATen/Context.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

#include "yoke/dist/world.h"

namespace yoke::fakes {

/// Runs `body` on `num_ranks` threads, each with its own World of that size on the CPU, and joins the threads. Rethrows
/// the exception of the lowest rank that threw. Calls World::shutdown() on each rank whose body returns, but not on
/// ranks whose body throws.
void run_ranks(int64_t num_ranks, const std::function<void(dist::World& world)>& body,
               std::chrono::milliseconds timeout = std::chrono::seconds(30));

inline std::mutex default_generator_mutex;

/// Returns make(), run with random numbers that start from `seed`. The default generator belongs to the process, so
/// ranks that are threads take turns. Ranks must use this function for every draw from the default generator, because
/// any other draw changes the numbers that a different rank gets inside `make`.
template <class Make>
auto make_seeded(uint64_t seed, const Make& make) {
  const std::lock_guard lock(default_generator_mutex);
  at::manual_seed(seed);
  return make();
}

}  // namespace yoke::fakes
