// What does RunOptions::watch cost in a step? Parts of it: the calls that a step makes of the clock, a sample of the
// memory (20 a second at most), and what the ranks' times and growths say (each 10 s); and steps of a small network in
// a Run with and without it, which alternate.
//
//   bench_watching [STEPS]     of each round
//
// Prints JSON: nanoseconds of the calls, microseconds of the others (medians of 9 rounds).
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <stdlib.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/train.h"
#include "yoke/train/detail/step_phases.h"
#include "yoke/train/watch/detail/memory_growth.h"
#include "yoke/train/watch/detail/slowdown.h"

namespace {

namespace train = yoke::train;
using yoke::Clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double ns_of_calls() {
  using train::detail::Phase;
  train::detail::PhaseClock clock;
  train::detail::PhaseWindows windows;
  constexpr int kSteps = 20'000;
  clock.start(Phase::kData);
  const auto begin = Clock::now();
  for (int i = 0; i < kSteps; ++i) {
    for (const auto phase : {Phase::kForward, Phase::kBackward, Phase::kWait, Phase::kOptimizer, Phase::kOther}) {
      train::detail::enter(phase);
    }
    windows.add(clock.take());
    train::detail::enter(Phase::kData);
  }
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kSteps;
}

double us_of_memory_sample() {
  constexpr int kSamples = 200;
  int64_t sum = 0;
  const auto begin = Clock::now();
  for (int i = 0; i < kSamples; ++i) sum += train::detail::anonymous_bytes().value_or(0);
  const auto us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / kSamples;
  return sum > 0 ? us : 0;
}

/// Of 64 ranks, without their exchange.
double us_of_verdict() {
  const std::vector<train::detail::PhaseTimes> windows(63, train::detail::PhaseTimes{{1, 20, 30, 5, 3, 1}});
  const std::vector<std::vector<train::detail::PhaseTimes>> ranks(64, windows);
  std::vector<train::detail::MemorySample> samples;
  for (int64_t i = 0; i < 63; ++i) samples.push_back({10 * i, (500 + i % 2) << 20});
  const auto begin = Clock::now();
  const bool is_slow = train::detail::find_slowdown(ranks, 8, 1).has_value();
  const bool grows = train::detail::find_growth(samples).has_value();
  const auto us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  return is_slow || grows ? 0 : us;
}

double us_of_step(yoke::dist::World& world, const std::filesystem::path& folder, int64_t num_steps, bool watch) {
  train::RunOptions options{.folder = folder, .watch = watch};
  train::Run run(world, options);
  torch::nn::Sequential model(torch::nn::Linear(64, 64), torch::nn::Linear(64, 10));
  train::DistributedDataParallel net(model, world);
  train::AdamW optimizer(net, {.lr = 1e-3});
  const auto x = at::randn({32 * num_steps, 64});
  const auto y = at::randint(10, {32 * num_steps});
  train::Loader loader(train::Samples{.data = x, .target = y}, world, {.batch_size = 32});
  run.state().add("model", net).add("optimizer", optimizer);
  const auto begin = Clock::now();
  for (auto& epoch : run.epochs(loader, 1)) {
    for (auto& batch : epoch) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(net(batch.data), batch.target).backward();
      optimizer.step();
    }
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / static_cast<double>(num_steps);
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const int64_t num_steps = argc > 1 ? std::stoll(argv[1]) : 2000;
  std::string folder = (std::filesystem::temp_directory_path() / "yoke-watching.XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  yoke::dist::World world;
  std::vector<double> calls, samples, verdicts, with, without, ratios;
  for (int round = 0; round < 9; ++round) {
    const std::filesystem::path here = std::filesystem::path(folder) / std::to_string(round);
    calls.push_back(ns_of_calls());
    samples.push_back(us_of_memory_sample());
    verdicts.push_back(us_of_verdict());
    for (const bool watch : {round % 2 == 0, round % 2 != 0}) {
      (watch ? with : without)
          .push_back(us_of_step(world, here.string() + (watch ? "-with" : "-without"), num_steps, watch));
    }
    ratios.push_back(with.back() / without.back());
  }
  world.shutdown();
  std::filesystem::remove_all(folder);
  std::cout << nlohmann::ordered_json{{"ns_of_the_calls_of_a_step", median(calls)},
                                      {"us_of_a_sample_of_memory", median(samples)},
                                      {"us_of_a_verdict_on_64_ranks", median(verdicts)},
                                      {"us_of_a_step_watched", median(with)},
                                      {"us_of_a_step_unwatched", median(without)},
                                      {"ratio", median(ratios)}}
                   .dump(2)
            << "\n";
  return 0;
}
