// How long a step of DistributedDataParallel takes, and what a rank keeps in memory: bench/peers/ddp_step.py on yoke.
//
//   yoke run -n 2 -- bench_ddp_step MODEL [STEPS]
//
// JSON from rank 0: the median and the 99th percentile of its steps in ms, the largest resident memory of all ranks,
// and the losses, by which one sees that both sides do the same.
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/train/models.h"
#include "yoke/dist/world.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kWarmUp = 20;

double status_mb(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stod(line.substr(key.size() + 1)) * 1024 / 1e6;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "bench_ddp_step MODEL [STEPS]\n";
    return 2;
  }
  const int64_t num_steps = argc > 2 ? std::stoll(argv[2]) : 200;
  at::set_num_threads(1);
  yoke::dist::World world;
  at::manual_seed(0);
  const auto model = yoke::bench::make_model(argv[1]);
  yoke::train::DistributedDataParallel parallel(*model, world, {.gradient_as_bucket_view = true});
  yoke::train::AdamW optimizer(model->named_parameters().pairs());
  at::manual_seed(static_cast<uint64_t>(1 + world.rank()));
  std::vector<yoke::bench::Batch> batches;
  for (int i = 0; i < 8; ++i) batches.push_back(model->make_batch());

  std::vector<double> milliseconds, losses;
  for (int64_t i = 0; i < kWarmUp + num_steps; ++i) {
    const auto began = Clock::now();
    optimizer.zero_grad();
    auto step = parallel.begin_step();
    const auto loss = model->loss(batches[static_cast<size_t>(i) % batches.size()]);
    step.backward(loss);
    optimizer.step();
    if (i >= kWarmUp) milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
    if (i < 10) losses.push_back(loss.item<double>());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  const auto memory = at::full({1}, status_mb("VmHWM"), at::kDouble);
  world.all_reduce(memory, yoke::dist::ReduceOp::kMax);
  if (world.rank() == 0) {
    std::cout << nlohmann::ordered_json({{"model", argv[1]},
                                         {"median_ms", milliseconds[milliseconds.size() / 2]},
                                         {"p99_ms", milliseconds[milliseconds.size() * 99 / 100]},
                                         {"peak_mb", memory.item<double>()},
                                         {"losses", losses}})
                     .dump()
              << std::endl;
  }
  world.shutdown();
}
