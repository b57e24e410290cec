// The checks of scripts/gpu-check that need one process and one device.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/train/models.h"
#include "tests/gpu/checks.h"
#include "yoke/dist/plug.h"
#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/device/devices.h"
#include "yoke/train/optim/adagrad.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/precision/grad_scaler.h"

namespace yoke::gpu_check {
namespace {

using at::Tensor;
using Clock = std::chrono::steady_clock;
const c10::Device kCpu(c10::kCPU);

/// A network 64-32-10 with ReLU. Weights, inputs and targets come from the same formulas as in peer.py.
struct Network {
  explicit Network(c10::Device device) {
    model->push_back(torch::nn::Linear(64, 32));
    model->push_back(torch::nn::ReLU());
    model->push_back(torch::nn::Linear(32, 10));
    {
      const at::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) {
        parameter.copy_(at::arange(parameter.numel(), at::kDouble).sin().mul(0.1).view(parameter.sizes()));
      }
    }
    train::to(*model, device);
    x = at::arange(64 * 64, at::kDouble).cos().to(at::kFloat).view({64, 64}).to(device);
    y = at::arange(64).remainder(10).to(device);
  }
  Tensor loss() { return at::cross_entropy_loss(model->forward(x), y); }
  Json sums() const {
    Json result = Json::array();
    for (const auto& parameter : model->parameters()) {
      result.push_back(parameter.detach().to(kCpu, at::kDouble).square().sum().item<double>());
    }
    return result;
  }

  torch::nn::Sequential model;
  Tensor x, y;
};

template <class Optimizer, class Options>
Json trajectory(c10::Device device, const Options& options) {
  Network network(device);
  Optimizer optimizer(network.model->named_parameters().pairs(), options);
  Json losses = Json::array();
  for (int i = 0; i < 20; ++i) {
    optimizer.zero_grad();
    const auto loss = network.loss();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.template item<double>());
  }
  return {{"losses", losses}, {"sums", network.sums()}};
}

/// Whether the device is a real GPU, not the fake GPU on the host, which is slow and has no streams.
bool is_real_gpu(c10::Device device) { return device.is_cuda() && std::string(dist::loaded_plug()->name) != "host"; }

/// Multiplies matrices on the current stream, long enough for work on a different stream to finish first.
Tensor work(c10::Device device) {
  const int64_t size = is_real_gpu(device) ? 2048 : 128;
  auto product = at::randn({size, size}, device);
  for (int i = 0; i < 20; ++i) product = product.mm(product).tanh();
  return product;
}

}  // namespace

Json loader(c10::Device device) {
  const train::Samples samples{at::randn({1000, 33}), at::arange(1000)};
  train::LoaderOptions options{.batch_size = 64, .seed = 1, .num_workers = 2};
  options.device = kCpu;
  train::Loader on_cpu(samples, options);
  options.device = device;
  train::Loader there(samples, options);
  std::optional<c10::StreamGuard> side;
  const bool has_streams = is_real_gpu(device);
  int64_t num_batches = 0;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    if (has_streams && epoch >= 2) {
      side.emplace(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
    }
    // Batches are compared after the epoch, so that a buffer reused too early is detected.
    std::vector<std::pair<Tensor, Tensor>> kept;
    on_cpu.epoch(epoch);
    for (const auto& batch : there.epoch(epoch)) {
      expect(batch.data.device() == device && batch.target.device() == device, "a batch on " + device.str());
      if (has_streams) work(device);
      const auto expected = on_cpu.next();
      kept.emplace_back(batch.data * 1, expected->data);
      kept.emplace_back(batch.target * 1, expected->target);
      ++num_batches;
    }
    for (const auto& [given, expected] : kept) expect(at::equal(given.cpu(), expected), "the CPU's batch");
  }
  return {{"device", device.str()}, {"batches", num_batches}, {"side_stream", has_streams}};
}

Json trajectories(c10::Device device) {
  using namespace train;
  at::set_num_threads(1);
  return {{"device", device.str()},
          {"AdamW", trajectory<AdamW>(device, AdamWOptions{.lr = 1e-2})},
          {"Adam", trajectory<Adam>(device, AdamOptions{.lr = 1e-2, .weight_decay = 1e-2, .amsgrad = true})},
          {"SGD", trajectory<Sgd>(device, SgdOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true})},
          {"Adagrad", trajectory<Adagrad>(device, AdagradOptions{.lr = 1e-2})}};
}

Json scaled(c10::Device device) {
  at::set_num_threads(1);
  Network network(device);
  train::AdamW optimizer(network.model->named_parameters().pairs(), {.lr = 1e-2});
  train::GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
  Json losses = Json::array(), scales = Json::array();
  for (int i = 0; i < 12; ++i) {
    optimizer.zero_grad();
    Tensor loss;
    {
      const train::Autocast autocast({.device_type = device.type(), .dtype = at::kHalf});
      loss = network.loss();
    }
    losses.push_back(loss.item<double>());
    if (i == 2 || i == 7) loss = loss * std::numeric_limits<double>::infinity();
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    scales.push_back(scaler.scale_now());
  }
  return {{"device", device.str()}, {"losses", losses}, {"scales", scales}, {"sums", network.sums()}};
}

Json checkpoint(c10::Device device, const std::string& folder) {
  dist::World world(dist::WorldOptions{.device = kCpu});
  const auto trained = [](c10::Device where) {
    Network network(where);
    auto optimizer = std::make_unique<train::AdamW>(network.model->named_parameters().pairs());
    for (int i = 0; i < 3; ++i) {
      optimizer->zero_grad();
      network.loss().backward();
      optimizer->step();
    }
    return std::make_pair(network, std::move(optimizer));
  };
  for (const auto& [from, to] : {std::pair(device, kCpu), std::pair(kCpu, device)}) {
    auto [saved, saved_optimizer] = trained(from);
    train::CheckpointFolder checkpoints(std::filesystem::path(folder) / from.str().substr(0, 4));
    train::TrainState state(world);
    state.add("model", saved.model).add("optimizer", *saved_optimizer);
    checkpoints.save_async(3, state);
    checkpoints.finish();

    Network loaded(to);
    train::AdamW optimizer(loaded.model->named_parameters().pairs());
    train::TrainState other(world);
    other.add("model", loaded.model).add("optimizer", optimizer);
    expect(checkpoints.load_latest(other).has_value(), "a checkpoint of " + from.str());
    expect(train::device_of(*loaded.model) == to, "a model that stays on " + to.str());
    const auto before = saved.model->parameters(), after = loaded.model->parameters();
    for (size_t i = 0; i < after.size(); ++i) {
      expect(at::equal(before[i].cpu(), after[i].cpu()), "the weights that were saved on " + from.str());
    }
    const auto state_before = saved_optimizer->state_dict(), state_after = optimizer.state_dict();
    expect(state_before.size() == state_after.size(), "all of the optimizer's state");
    for (const auto& [name, tensor] : state_before) {
      expect(at::equal(tensor.cpu(), state_after.at(name).cpu()), "the optimizer's " + name);
    }
  }
  world.shutdown();
  return {{"device", device.str()}};
}

Json steps(c10::Device device, const std::string& name, int64_t num_steps) {
  if (device.is_cpu()) at::set_num_threads(1);
  at::manual_seed(0);
  const auto model = bench::make_model(name);
  at::manual_seed(1);
  std::vector<bench::Batch> batches;
  for (int i = 0; i < 8; ++i) {
    const auto batch = model->make_batch();
    batches.push_back({batch.x.to(device), batch.y.to(device)});
  }
  train::to(*model, device);
  train::AdamW optimizer(model->named_parameters().pairs());
  const auto step = [&](int64_t i) {
    const auto& batch = batches[static_cast<size_t>(i) % batches.size()];
    optimizer.zero_grad();
    const auto loss = model->forward(batch.x, batch.y);
    loss.backward();
    optimizer.step();
    return loss;
  };
  Json losses = Json::array();
  for (int64_t i = 0; i < 10; ++i) losses.push_back(step(i).item<double>());  // also serves as warm-up
  std::vector<double> milliseconds;
  // The loop waits for the device once per chunk, as a training does that logs every few steps.
  constexpr int64_t kChunk = 10;
  for (int64_t i = 0; i < num_steps; i += kChunk) {
    const auto began = Clock::now();
    Tensor loss;
    for (int64_t j = 0; j < kChunk; ++j) loss = step(i + j);
    loss.item<double>();
    milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count() / kChunk);
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  return {{"device", device.str()},
          {"median_ms", milliseconds[milliseconds.size() / 2]},
          {"worst_ms", milliseconds.back()},
          {"losses", losses}};
}

Json burn(c10::Device device, double seconds) {
  int64_t num_rounds = 0;
  for (const auto end = Clock::now() + std::chrono::duration<double>(seconds); Clock::now() < end; ++num_rounds) {
    work(device).sum().item<double>();
  }
  return {{"device", device.str()}, {"rounds", num_rounds}};
}

}  // namespace yoke::gpu_check
