// Hot paths with libtorch, on one thread: see bench/instructions/run. The network is small, so that most of the
// instructions are what yoke and the dispatcher add to its kernels.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "bench/instructions/count.h"
#include "yoke/dist/world.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace {

using yoke::bench::count;
using namespace yoke::train;

struct Network : torch::nn::Module {
  Network() {
    register_module("layers", layers);
    const at::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      parameter.copy_(at::arange(parameter.numel(), at::kDouble).sin().mul(0.1).view(parameter.sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& input) { return layers->forward(input); }

  torch::nn::Sequential layers{torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                               torch::nn::ReLU(), torch::nn::Linear(64, 10)};
};

void step() {
  const auto network = std::make_shared<Network>();
  const auto x = at::arange(64 * 64, at::kDouble).cos().to(at::kFloat).view({64, 64});
  const auto y = at::arange(64).remainder(10);
  const auto parameters = network->named_parameters().pairs();
  AdamW optimizer(parameters, {});
  const auto backward = [&] { at::cross_entropy_loss(network->forward(x), y).backward(); };
  backward();
  count("train.adamw/100", 100, [&] { optimizer.step(); });
  count("train.clip_grad_norm/100", 100, [&] { clip_grad_norm(parameters, {.max_norm = 1.0}); });
  count("train.forward_and_backward/20", 20, [&] {
    optimizer.zero_grad();
    backward();
  });

  yoke::dist::World world;
  DistributedDataParallel<Network> net(*network, world);
  count("train.ddp_forward_and_backward/20", 20, [&] {
    optimizer.zero_grad();
    at::cross_entropy_loss(net(x), y).backward();
  });
  world.shutdown();
}

/// Batches of 64 pictures, bytes that become normalised floats.
void load() {
  constexpr int64_t kBatches = 20;
  const Samples samples{at::ones({64 * (kBatches + 2), 1, 28, 28}, at::kByte),
                        at::zeros({64 * (kBatches + 2)}, at::kLong)};
  Loader loader(samples, {.batch_size = 64, .num_workers = 0, .normalization = Normalization{{0.286}, {0.353}}});
  loader.epoch(0);
  count("train.loader/20", kBatches, [&] { loader.next(); });
}

}  // namespace

int main() {
  at::set_num_threads(1);
  step();
  load();
}
