#include "fakes/run_ranks.h"

#include <cstdlib>
#include <exception>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

namespace yoke::fakes {
namespace {

/// libtorch has one flight recorder per process, which adds an entry for a group to a map without a lock. Ranks that
/// are threads crash in it about once in thirty runs. This turns the recorder off before the first group of this
/// process is created.
[[maybe_unused]] const int recorder_is_off = setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

}  // namespace

void run_ranks(int64_t num_ranks, const std::function<void(dist::World& world)>& body,
               std::chrono::milliseconds timeout) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(num_ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        RankEnv env;
        env.rank = env.local_rank = rank;
        env.world_size = env.local_world_size = num_ranks;
        dist::World world(env, store, {.timeout = timeout, .device = c10::Device(c10::kCPU)});
        body(world);
        world.shutdown();
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace yoke::fakes
