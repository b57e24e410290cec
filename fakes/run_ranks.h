// fakes/run_ranks.h -- runs ranks as threads of one process, with real Gloo, a store in memory and no launcher.
#pragma once

#include <ATen/Context.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

#include "yoke/dist/world.h"

namespace yoke::fakes {

/// Runs `body` on `num_ranks` threads, each with its own World of `num_ranks` ranks on the CPU, and joins the threads.
/// Calls World::shutdown() on each rank whose body returns. If bodies throw, rethrows the exception of the lowest rank.
void run_ranks(int64_t num_ranks, const std::function<void(dist::World& world)>& body,
               std::chrono::milliseconds timeout = std::chrono::seconds(30));

inline std::mutex default_generator_mutex;

/// Runs make() with random numbers that start from `seed`, and returns its result. The default generator belongs to the
/// process, so ranks that are threads take turns. Ranks must use this function for every draw from the default
/// generator, because any other draw would change the numbers that another rank gets in its `make`.
template <class Make>
auto make_seeded(uint64_t seed, const Make& make) {
  const std::lock_guard lock(default_generator_mutex);
  at::manual_seed(seed);
  return make();
}

}  // namespace yoke::fakes
