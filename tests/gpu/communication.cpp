// The checks of scripts/gpu-check that need a World.
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include <nlohmann/json.hpp>

#include "tests/gpu/checks.h"
#include "yoke/dist/gradient.h"
#include "yoke/dist/world.h"
#include "yoke/train/device/devices.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"

namespace yoke::gpu_check {
namespace {

using at::Tensor;

/// A network of two layers, with the same weights on every rank.
struct Net : torch::nn::Module {
  explicit Net(c10::Device device) {
    a = register_module("a", torch::nn::Linear(8, 16));
    b = register_module("b", torch::nn::Linear(16, 4));
    const at::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      parameter.copy_(at::arange(parameter.numel(), at::kDouble).sin().mul(0.3).view(parameter.sizes()));
    }
    train::to(*this, device);
  }
  Tensor forward(const Tensor& x, const Tensor& y) { return torch::cross_entropy_loss(b(torch::tanh(a(x))), y); }
  torch::nn::Linear a{nullptr}, b{nullptr};
};

Tensor rows(int64_t count, c10::Device device) {
  return at::arange(count * 8, at::kDouble).cos().to(at::kFloat).view({count, 8}).to(device);
}
Tensor classes(int64_t count, c10::Device device) { return at::arange(count).remainder(4).to(device); }

}  // namespace

Json collectives() {
  dist::World world;
  const auto device = world.device();
  const int64_t rank = world.rank(), size = world.size();
  const auto value = [&](int64_t of) { return at::full({3}, static_cast<double>(of + 1), device); };
  const auto all = at::arange(1, size + 1, at::TensorOptions(at::kFloat).device(device));
  const auto sum = static_cast<double>(size * (size + 1) / 2);

  auto tensor = value(rank);
  world.all_reduce(tensor);
  expect(tensor.eq(sum).all().item<bool>(), "all_reduce");
  tensor = value(rank);
  world.all_reduce(tensor, dist::ReduceOp::kMean);
  expect(tensor.eq(sum / static_cast<double>(size)).all().item<bool>(), "the mean of all_reduce");
  tensor = value(rank);
  world.broadcast(tensor, size - 1);
  expect(at::equal(tensor, value(size - 1)), "broadcast");
  expect(at::equal(world.all_gather(value(rank)), all.view({size, 1}).expand({size, 3})), "all_gather");
  const auto gathered = world.gather(value(rank));
  expect(rank != 0 || at::equal(gathered, all.view({size, 1}).expand({size, 3})), "gather");
  auto part = at::full({3}, 0.0, device);
  world.scatter(part, all.view({size, 1}).expand({size, 3}).contiguous());
  expect(at::equal(part, value(rank)), "scatter");
  auto received = at::full({size}, 0.0, device);
  world.all_to_all(received, at::full({size}, static_cast<double>(rank + 1), device));
  expect(at::equal(received, all), "all_to_all");
  auto row = at::full({3}, 0.0, device);
  world.reduce_scatter(row, all.view({size, 1}).expand({size, 3}).contiguous().view({-1}));
  expect(at::equal(row, value(rank) * size), "reduce_scatter");

  const auto leaf = value(rank).requires_grad_(), repeated = leaf.repeat({size});
  for (const auto& result : {dist::gradient::all_reduce(world, leaf), dist::gradient::broadcast(world, leaf),
                             dist::gradient::all_gather(world, leaf), dist::gradient::reduce_scatter(world, repeated),
                             dist::gradient::all_to_all(world, repeated)}) {
    result.sum().backward({}, /*retain_graph=*/true);
  }
  // Each gives a one for each rank; the broadcast only to its root.
  expect(leaf.grad().eq(static_cast<double>((rank == 0 ? 5 : 4) * size)).all().item<bool>(),
         "gradients of collectives");
  world.barrier();
  world.shutdown();
  return {{"device", device.str()}, {"ranks", size}};
}

// NCCL does not accept two ranks on one GPU, so two ranks that share a GPU reduce on the CPU with Gloo.
Json two_ranks() {
  dist::World world;
  const auto device = world.device();
  const int64_t num_rows = 4 * world.size();
  Net whole(device), half(device);
  whole.forward(rows(num_rows, device), classes(num_rows, device)).backward();
  half.forward(rows(num_rows, device).narrow(0, 4 * world.rank(), 4),
               classes(num_rows, device).narrow(0, 4 * world.rank(), 4))
      .backward();
  const auto expected = whole.parameters(), parts = half.parameters();
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto mean = parts[i].grad().cpu();
    world.all_reduce(mean, dist::ReduceOp::kMean);
    expect(at::allclose(mean.to(device), expected[i].grad(), 1e-4, 1e-6), "the mean of two halves' gradients");
  }
  const auto devices = world.all_gather_text(device.str());
  world.shutdown();
  return {{"devices", devices}};
}

Json sharded() {
  dist::World world;
  const auto device = world.device();
  Net plain(device), divided(device);
  train::AdamW optimizer(plain.named_parameters().pairs());
  train::FullyShardedDataParallel<Net> net(divided, world, {});
  train::AdamW of_parts(net.parameters());
  const auto x = rows(16, device), y = classes(16, device);
  Json losses = Json::array();
  for (int i = 0; i < 10; ++i) {
    optimizer.zero_grad();
    of_parts.zero_grad();
    const auto expected = plain.forward(x, y), loss = net(x, y);
    expected.backward();
    loss.backward();
    optimizer.step();
    of_parts.step();
    losses.push_back(loss.item<double>());
    expect(at::allclose(loss, expected, 1e-4, 1e-6), "the loss of step " + std::to_string(i));
  }
  expect(losses.back() < losses.front(), "a loss that falls");
  world.shutdown();
  return {{"device", device.str()}, {"losses", losses}};
}

}  // namespace yoke::gpu_check
