// fakes/run_ranks.h -- ranks as threads of one process: real Gloo, a store in memory, no launcher.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "yoke/dist/world.h"

namespace yoke::fakes {

/// Runs `body` on `num_ranks` threads, each with its own World of that size on the CPU, and joins them all. Rethrows
/// the exception of the lowest rank that threw. World::shutdown() is called on a rank whose body returns, but not if it
/// throws.
void run_ranks(int64_t num_ranks, const std::function<void(dist::World& world)>& body,
               std::chrono::milliseconds timeout = std::chrono::seconds(30));

}  // namespace yoke::fakes
