// How long does a training step take, and how much memory does a rank need? Peer: PyTorch's DistributedDataParallel in
// bench/peers/step.py. WAY selects other ways of training for comparison.
//
//   yoke run -n 2 -- bench_step MODEL [STEPS [WAY]]
//
// WAY   ddp (the default), zero-1, fused (averages in the step), fsdp: one batch for each rank
//       one, data-parallel: without a launcher, one process computes two batches at once, with two threads
//
// Rank 0 prints JSON: the median and the 99th percentile of its steps in ms, the largest resident memory of any rank,
// and the losses of the first steps, which show that yoke and its peer do the same work.
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/train/models.h"
#include "yoke/dist/world.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/parallel/data_parallel.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"
#include "yoke/train/shard/sharded_optimizer.h"

namespace {

using namespace yoke::train;
using yoke::bench::Batch;
using yoke::bench::Model;
using Clock = std::chrono::steady_clock;
constexpr int64_t kMaxWarmUp = 20;

double status_mb(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stod(line.substr(key.size() + 1)) * 1024 / 1e6;
  }
  return 0;
}

/// Does one step on a batch and returns its loss. The function owns everything that it uses.
using Step = std::function<at::Tensor(const Batch& batch)>;

/// `optimizer` is an AdamW, or a ShardedOptimizer that was constructed before `net`.
template <class AnyOptimizer>
Step distributed(const std::shared_ptr<Model>& model, yoke::dist::World& world, std::shared_ptr<AnyOptimizer> optimizer,
                 GradientMean mean = GradientMean::kDone) {
  const auto net = std::make_shared<DistributedDataParallel<Model>>(
      *model, world,
      DistributedDataParallelOptions{.gradient_as_bucket_view = true,
                                     .average_in_step = mean == GradientMean::kInStep});
  return [net, model, optimizer](const Batch& batch) {
    optimizer->zero_grad();
    const auto loss = (*net)(batch.x, batch.y);
    loss.backward();
    optimizer->step();
    return loss;
  };
}

Step zero_1(const std::shared_ptr<Model>& model, yoke::dist::World& world, GradientMean mean) {
  const auto optimizer = std::make_shared<ShardedOptimizer>(
      model->named_parameters().pairs(), world,
      [](NamedTensors slices) { return std::make_unique<AdamW>(std::move(slices)); },
      ShardedOptimizerOptions{.gradients = mean});
  return distributed(model, world, optimizer, mean);
}

Step fully_sharded(const std::shared_ptr<Model>& model, yoke::dist::World& world) {
  const auto sharded =
      std::make_shared<FullyShardedDataParallel<Model>>(*model, world, FullyShardedOptions{.units = model->units()});
  const auto optimizer = std::make_shared<AdamW>(sharded->parameters());
  return [sharded, model, optimizer](const Batch& batch) {
    optimizer->zero_grad();
    const auto loss = (*sharded)(batch.x, batch.y);
    loss.backward();
    optimizer->step();
    return loss;
  };
}

Step one(const std::shared_ptr<Model>& model, std::shared_ptr<AdamW> optimizer) {
  return [=](const Batch& batch) {
    optimizer->zero_grad();
    const auto loss = model->forward(batch.x, batch.y);
    loss.backward();
    optimizer->step();
    return loss;
  };
}

Step data_parallel(const std::shared_ptr<Model>& model, const std::string& name, std::shared_ptr<AdamW> optimizer) {
  const auto parallel = std::make_shared<DataParallel<Model>>(model, std::vector<c10::Device>{c10::kCPU, c10::kCPU},
                                                              [name] { return yoke::bench::make_model(name); });
  return [=](const Batch& batch) {
    optimizer->zero_grad();
    const auto losses = parallel->run(
        [](Model& replica, const std::vector<at::Tensor>& part) {
          return std::vector<at::Tensor>{replica.forward(part[0], part[1])};
        },
        {batch.x, batch.y});
    const auto loss = losses[0].mean();
    loss.backward();
    optimizer->step();
    return loss;
  };
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "", way = argc > 3 ? argv[3] : "ddp";
  const bool is_distributed = way == "ddp" || way == "zero-1" || way == "fused" || way == "fsdp";
  if (argc < 2 || !(is_distributed || way == "one" || way == "data-parallel")) {
    std::cerr << "bench_step MODEL [STEPS [ddp|zero-1|fused|fsdp|one|data-parallel]]\n";
    return 2;
  }
  const int64_t num_steps = argc > 2 ? std::stoll(argv[2]) : 200;
  const int64_t num_warm_up = std::min(num_steps, kMaxWarmUp);
  at::set_num_threads(way == "one" ? 2 : 1);
  yoke::dist::World world;
  at::manual_seed(0);
  const auto model = yoke::bench::make_model(name);
  const auto optimizer = [&] { return std::make_shared<AdamW>(model->named_parameters().pairs()); };
  const Step step = way == "ddp"             ? distributed(model, world, optimizer())
                    : way == "zero-1"        ? zero_1(model, world, GradientMean::kDone)
                    : way == "fused"         ? zero_1(model, world, GradientMean::kInStep)
                    : way == "fsdp"          ? fully_sharded(model, world)
                    : way == "data-parallel" ? data_parallel(model, name, optimizer())
                                             : one(model, optimizer());
  at::manual_seed(static_cast<uint64_t>(1 + world.rank()));
  std::vector<Batch> batches;
  for (int i = 0; i < 8; ++i) {
    batches.push_back(model->make_batch());
    if (is_distributed) continue;
    const auto more = model->make_batch();
    batches.back() = {at::cat({batches.back().x, more.x}), at::cat({batches.back().y, more.y})};
  }

  std::vector<double> milliseconds, losses;
  for (int64_t i = 0; i < num_warm_up + num_steps; ++i) {
    const auto began = Clock::now();
    const auto loss = step(batches[static_cast<size_t>(i) % batches.size()]);
    if (i >= num_warm_up)
      milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
    if (i < 10) losses.push_back(loss.item<double>());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  const auto memory = at::full({1}, status_mb("VmHWM"), at::kDouble);
  world.all_reduce(memory, yoke::dist::ReduceOp::kMax);
  if (world.rank() == 0) {
    std::cout << nlohmann::ordered_json({{"model", name},
                                         {"way", way},
                                         {"median_ms", milliseconds[milliseconds.size() / 2]},
                                         {"p99_ms", milliseconds[milliseconds.size() * 99 / 100]},
                                         {"peak_mb", memory.item<double>()},
                                         {"losses", losses}})
                     .dump()
              << std::endl;
  }
  world.shutdown();
  return 0;
}
