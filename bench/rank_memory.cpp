// Measures the resident memory of a training rank, as bench/peers/rank_memory.py does with PyTorch. Rank 0 prints JSON.
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "yoke/dist/world.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace {

namespace nn = torch::nn;

struct Network : nn::Module {
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::Linear linear1{nullptr}, linear2{nullptr};
  Network() {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 32, 3)));
    conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(32, 64, 3)));
    linear1 = register_module("linear1", nn::Linear(1600, 256));
    linear2 = register_module("linear2", nn::Linear(256, 10));
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return linear2(torch::relu(linear1(x.flatten(1))));
  }
};

double status_mb(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stod(line.substr(key.size() + 1)) * 1024 / 1e6;
  }
  return 0;
}

}  // namespace

int main(int, char**) {
  at::set_num_threads(1);
  yoke::dist::World world;
  torch::manual_seed(0);
  Network network;
  yoke::train::DistributedDataParallel net(network, world);
  torch::optim::SGD optimizer(network.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int i = 0; i < 20; ++i) {
    optimizer.zero_grad();
    const auto output = net(torch::randn({64, 1, 28, 28}));
    torch::cross_entropy_loss(output, torch::randint(10, {64}, torch::kLong)).backward();
    optimizer.step();
  }
  const auto figures = world.all_gather(torch::tensor({status_mb("VmRSS"), status_mb("RssAnon")}, torch::kDouble));
  if (world.rank() == 0) {
    nlohmann::ordered_json ranks;
    for (int64_t rank = 0; rank < world.size(); ++rank) {
      ranks.push_back({{"VmRSS", figures[rank][0].item<double>()}, {"RssAnon", figures[rank][1].item<double>()}});
    }
    std::cout << nlohmann::ordered_json({{"unit", "MB"}, {"ranks", ranks}}).dump() << std::endl;
  }
  world.shutdown();
  return 0;
}
