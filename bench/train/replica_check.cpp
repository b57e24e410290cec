// What does it cost to compare what the ranks hold alike? Blocks of steps with a comparison in their middle alternate
// with blocks without, for networks of the other training benches with DistributedDataParallel and AdamW.
//
//   yoke run --no-prefix -n 2 -- bench_replica_check [--rounds N] [--steps N] [MODEL ...]
//
// Rank 0 prints medians: a step, a block without and with a comparison, a comparison alone, and its share of as many
// steps as a Run makes between two comparisons.
#include "yoke/train/run/replica_check.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/train/models.h"
#include "yoke/base/clock.h"
#include "yoke/base/median.h"
#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/train_state.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/run/run.h"
#include "yoke/train/seed.h"

namespace {

using namespace yoke;

double ms_of(const auto& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void measure(dist::World& world, const std::string& name, int rounds, int num_steps) {
  train::seed({.seed = 1});
  const auto model = bench::make_model(name);
  train::DistributedDataParallel net(*model, world);
  train::AdamW optimizer(net, {.lr = 1e-4});
  train::TrainState state(world);
  state.add("model", net).add("optimizer", optimizer);
  train::ReplicaCheck check(state);
  const auto batch = model->make_batch();
  const auto step = [&] {
    net(batch.x, batch.y).backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  for (int i = 0; i < 3; ++i) step();
  check(0);
  std::vector<double> plain, compared, alone;
  for (int round = 0; round < rounds; ++round) {
    for (const bool compares : {round % 2 == 0, round % 2 != 0}) {
      world.barrier();
      const auto taken = ms_of([&] {
        for (int i = 0; i < num_steps; ++i) {
          if (compares && i == num_steps / 2) check(round);
          step();
        }
      });
      (compares ? compared : plain).push_back(taken);
    }
    world.barrier();
    alone.push_back(ms_of([&] { check(round); }));
  }
  const double step_ms = yoke::median(plain) / num_steps, alone_ms = yoke::median(alone);
  if (world.rank() != 0) return;
  fmt::print(
      "{:12} step {:9.4f} ms, {} steps {:9.3f} ms, with a comparison {:9.3f} ms; a comparison {:.4f} ms, {:.3f} % of "
      "{} "
      "steps\n",
      name, step_ms, num_steps, yoke::median(plain), yoke::median(compared), alone_ms,
      100 * alone_ms / (step_ms * static_cast<double>(train::RunOptions().check_replicas_every)),
      train::RunOptions().check_replicas_every);
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 31, num_steps = 200;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--rounds" && i + 1 < argc) {
      rounds = std::atoi(argv[++i]);
    } else if (word == "--steps" && i + 1 < argc) {
      num_steps = std::atoi(argv[++i]);
    } else {
      names.emplace_back(word);
    }
  }
  if (names.empty()) names = {"mlp", "resnet20"};
  at::set_num_threads(1);
  train::flush_denormals();
  dist::World world;
  for (const auto& name : names) measure(world, name, rounds, num_steps);
  world.shutdown();
  return 0;
}
