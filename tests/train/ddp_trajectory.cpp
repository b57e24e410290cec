// Trains like tests/reference/record_ddp_trajectory.py, but with yoke: the same network, batches and optimizer. Writes
// JSON in the same format.
//
//   yoke run -n 2 -- ddp_trajectory [--steps N] [--bucket-cap-mb MB] [--out FILE]
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <zlib.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/dist/world.h"
#include "yoke/train/parallel/distributed_data_parallel.h"

namespace {

namespace nn = torch::nn;

struct Network : nn::Module {
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::Linear linear1{nullptr}, linear2{nullptr};

  Network() {  // one layer per statement, in this order, so that the same seed gives Python's weights
    conv1 = register_module("0", nn::Conv2d(nn::Conv2dOptions(1, 32, 3)));
    conv2 = register_module("3", nn::Conv2d(nn::Conv2dOptions(32, 64, 3)));
    linear1 = register_module("7", nn::Linear(1600, 256));
    linear2 = register_module("9", nn::Linear(256, 10));
  }

  at::Tensor forward(at::Tensor x) {  // [batch, 1, 28, 28] -> [batch, 10]
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return linear2(torch::relu(linear1(x.flatten(1))));
  }
};

std::string hex(double value) {  // formats like Python's float.hex()
  std::string text(64, '\0');
  text.resize(static_cast<size_t>(std::snprintf(text.data(), text.size(), "%.13a", value)));
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t num_steps = 100;
  double bucket_mb = 0;
  std::string out;
  CLI::App app("100 steps of DistributedDataParallel, for comparison with PyTorch's");
  app.add_option("--steps", num_steps);
  app.add_option("--bucket-cap-mb", bucket_mb);
  app.add_option("--out", out);
  CLI11_PARSE(app, argc, argv);

  at::set_num_threads(1);
  yoke::dist::World world;
  torch::manual_seed(0);
  Network network;
  yoke::train::DistributedDataParallelOptions options;
  if (bucket_mb > 0) options.bucket_bytes = options.first_bucket_bytes = static_cast<int64_t>(bucket_mb * (1 << 20));
  yoke::train::DistributedDataParallel net(network, world, options);
  torch::optim::SGD optimizer(network.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  const auto losses = torch::zeros({num_steps}, torch::kDouble);
  for (int64_t step_number = 0; step_number < num_steps; ++step_number) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 * world.rank() + step_number));
    const auto x = torch::randn({64, 1, 28, 28}, generator);
    const auto y = torch::randint(10, {64}, generator, torch::kLong);
    optimizer.zero_grad();
    const auto loss = torch::cross_entropy_loss(net(x), y);
    loss.backward();
    optimizer.step();
    losses[step_number] = loss.detach().to(torch::kDouble);
  }

  const auto all_losses = world.all_gather(losses);  // [ranks, steps]
  if (world.rank() == 0) {
    nlohmann::ordered_json record;
    record["steps"] = num_steps;
    record["world_size"] = world.size();
    for (int64_t rank = 0; rank < world.size(); ++rank) {
      for (int64_t i = 0; i < num_steps; ++i) {
        record["losses_hex"][static_cast<size_t>(rank)].push_back(hex(all_losses[rank][i].item<double>()));
      }
    }
    for (const auto& item : network.named_parameters()) {
      const auto values = item.value().detach().contiguous();
      record["parameter_crc32"][item.key()] =
          crc32(0, static_cast<const Bytef*>(values.data_ptr()), static_cast<uInt>(values.nbytes()));
      record["parameter_sums_hex"][item.key()] = hex(values.sum(torch::kDouble).item<double>());
    }
    if (out.empty()) {
      std::cout << record.dump(1) << '\n';
    } else {
      std::ofstream(out) << record.dump(1) << '\n';
    }
  }
  world.shutdown();
  return 0;
}
