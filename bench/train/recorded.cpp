// How much faster is a recorded step than the step itself? Peer: bench/peers/recorded.py, PyTorch's step with its fused
// AdamW, and compiled. One thread, float.
//
//   bench_recorded [MODEL [STEPS [ddp]]]
//
// MODEL is mlp-WIDTH (WIDTH-WIDTH-WIDTH-10, batch 32), or one of bench/train/models.h.
// Steps of both kinds alternate in blocks of 20: a training has one kind, which finds the caches as it has left them,
// as the peer's does. Prints JSON: medians in microseconds. With `ddp` they are steps of a DistributedDataParallel, and
// the ranks are those of `yoke run -n 2 -- bench_recorded MODEL STEPS ddp`; rank 0 prints.
#include "yoke/train/record/recorded.h"

#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "bench/train/models.h"
#include "yoke/base/environment.h"
#include "yoke/dist/world.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace {

using namespace yoke::train;
using Clock = std::chrono::steady_clock;

constexpr int64_t kBlock = 20;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Step>
void measure(const std::string& model, const Step& step, const yoke::bench::Batch& batch, int64_t num_steps,
             bool prints) {
  Recorded recorded(step, {.check = false});
  for (int i = 0; i < 10; ++i) recorded(batch.x, batch.y);
  const auto microseconds = [&](auto& call) {
    const auto began = Clock::now();
    call(batch.x, batch.y);
    return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
  };
  std::vector<double> itself, replayed;
  for (int64_t begin = 0; begin < num_steps; begin += kBlock) {
    const auto end = std::min(begin + kBlock, num_steps);
    for (int64_t i = begin; i < end; ++i) itself.push_back(microseconds(step));
    for (int64_t i = begin; i < end; ++i) replayed.push_back(microseconds(recorded));
  }
  if (!prints) return;
  std::cout << nlohmann::ordered_json({{"model", model},
                                       {"step_us", median(itself)},
                                       {"recorded_us", median(replayed)},
                                       {"ratio", median(itself) / median(replayed)},
                                       {"why_not", recorded.why_not()}})
                   .dump()
            << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "mlp-64";
  const auto num_steps = argc > 2 ? yoke::parse_int(argv[2]).value_or(0) : 2000;
  const auto width = name.starts_with("mlp-") ? yoke::parse_int(name.substr(4)).value_or(0) : 0;
  const auto& names = yoke::bench::model_names();
  const bool is_known = width > 0 || std::find(names.begin(), names.end(), name) != names.end();
  if (!is_known || num_steps <= 0 || argc > 4 || (argc > 3 && std::string_view(argv[3]) != "ddp")) {
    std::cerr << "bench_recorded [MODEL [STEPS [ddp]]]\nMODEL is mlp-WIDTH, or one of:";
    for (const auto& one : names) std::cerr << ' ' << one;
    std::cerr << '\n';
    return 2;
  }
  std::optional<yoke::dist::World> world;
  if (argc > 3) world.emplace();
  at::set_num_threads(1);
  flush_denormals();
  at::manual_seed(0);
  const auto train = [&](const std::shared_ptr<torch::nn::Module>& module, const auto& loss_of,
                         const yoke::bench::Batch& batch) {
    std::optional<DistributedDataParallel<torch::nn::Module>> net;
    if (world) net.emplace(*module, *world);
    AdamW optimizer(module->named_parameters().pairs());
    const auto step = [&](const at::Tensor& x, const at::Tensor& y) {
      optimizer.zero_grad();
      const at::Tensor loss = net ? net->run([&]() -> at::Tensor { return loss_of(x, y); }) : loss_of(x, y);
      loss.backward();
      optimizer.step();
      return loss;
    };
    measure(name, step, batch, num_steps, !world || world->rank() == 0);
  };
  if (width > 0) {
    namespace nn = torch::nn;
    nn::Sequential net(nn::Linear(width, width), nn::ReLU(), nn::Linear(width, width), nn::ReLU(),
                       nn::Linear(width, 10));
    train(net.ptr(), [&](const auto& x, const auto& y) { return torch::cross_entropy_loss(net->forward(x), y); },
          {at::randn({32, width}), at::randint(10, {32}, at::kLong)});
  } else {
    const auto model = yoke::bench::make_model(name);
    train(
        model, [&](const auto& x, const auto& y) { return model->forward(x, y); }, model->make_batch());
  }
  if (world) world->shutdown();
  return 0;
}
