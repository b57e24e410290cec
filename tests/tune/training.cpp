// A training for tests and the bench of `yoke tune batch`: an MLP on random data, with the batch size of BATCH_SIZE.
// Arguments: `gan` has two optimizers; `device` waits in each step as for a device that takes 20 ms and 0.1 ms for each
// sample, so that its speed hardly depends on other load; a number is the width of the layers.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "yoke/dist/world.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace {

torch::nn::Sequential make_mlp(int64_t width) {
  return torch::nn::Sequential(torch::nn::Linear(width, width), torch::nn::ReLU(), torch::nn::Linear(width, 10));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace yoke;
  const char* const variable = std::getenv("BATCH_SIZE");
  const int64_t batch = variable == nullptr ? 32 : std::atoll(variable);
  const std::string word = argc > 1 ? argv[1] : "128";
  const bool is_gan = word == "gan";
  const bool has_device = word == "device";
  const int64_t width = is_gan || has_device ? 64 : std::atoll(word.c_str());
  at::set_num_threads(1);
  dist::World world;
  auto network = make_mlp(width), other = make_mlp(width);
  train::DistributedDataParallel net(*network, world);
  train::Sgd optimizer(net, {.lr = 0.01});
  train::Sgd second(*other, {.lr = 0.01});
  while (!world.should_stop()) {
    const auto data = at::randn({batch, width});
    const auto target = at::randint(10, {batch}, at::kLong);
    if (has_device) std::this_thread::sleep_for(std::chrono::microseconds(20'000 + 100 * batch));
    optimizer.zero_grad();
    at::cross_entropy_loss(net(data), target).backward();
    optimizer.step();
    if (!is_gan) continue;
    second.zero_grad();
    at::cross_entropy_loss(other->forward(data), target).backward();
    second.step();
  }
}
