// yoke/train/shard/network_test.h -- the network, the batch and the training loop for the tests of this folder.
#pragma once

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include <mutex>
#include <string>
#include <vector>

#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/checkpoint/tensor_slice.h"
#include "yoke/train/recompute.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"
#include "yoke/train/shard/unit.h"

namespace yoke::train {

struct Block : torch::nn::Module {
  torch::nn::Linear wide{nullptr}, narrow{nullptr};
  explicit Block(int64_t width) {
    wide = register_module("wide", torch::nn::Linear(width, 3 * width));
    narrow = register_module("narrow", torch::nn::Linear(3 * width, width));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto inner = [this](const at::Tensor& input) { return narrow(torch::relu(wide(input))); };
    return x + (is_recomputed ? recompute(inner, x) : inner(x));
  }
  bool is_recomputed = false;
};

enum class Recomputing { kNot, kInsideUnits, kAroundUnits };

struct Network : torch::nn::Module {
  torch::nn::Linear first{nullptr}, last{nullptr};
  std::vector<Unit<Block>> blocks;

  explicit Network(int64_t width = 10, int num_blocks = 3) {
    first = register_module("first", torch::nn::Linear(6, width));
    for (int i = 0; i < num_blocks; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Unit<Block>(width)));
    }
    last = register_module("last", torch::nn::Linear(width, 2));
  }

  at::Tensor forward(at::Tensor x) {  // [batch, 6] -> [batch, 2]
    x = first(x);
    for (auto& block : blocks) {
      const auto call = [&block](const at::Tensor& input) { return block(input); };
      x = recomputing == Recomputing::kAroundUnits ? recompute(call, x) : call(x);
    }
    return last(x);
  }

  void set_recomputing(Recomputing how) {
    recomputing = how;
    for (auto& block : blocks) block->is_recomputed = how == Recomputing::kInsideUnits;
  }
  Recomputing recomputing = Recomputing::kNot;
};

inline const std::vector<std::string> kUnits = {"block0", "block1", "block2"};

/// Locks a mutex while seeding, because ranks are threads of one process and share the default generator.
inline std::shared_ptr<Network> make_network(uint64_t seed = 0, int64_t width = 10) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  return std::make_shared<Network>(width);
}

/// 16 samples, divided between `size` ranks.
struct Batch {
  at::Tensor x = torch::sin(torch::arange(16 * 6).to(torch::kFloat)).reshape({16, 6});
  at::Tensor y = torch::cos(torch::arange(16 * 2).to(torch::kFloat)).reshape({16, 2});

  Batch part(int64_t rank, int64_t size) const {
    return {x.narrow(0, 16 / size * rank, 16 / size), y.narrow(0, 16 / size * rank, 16 / size)};
  }
};

inline at::Tensor loss_of(const at::Tensor& output, const Batch& batch) { return torch::mse_loss(output, batch.y); }

/// Collective. Returns the model's whole tensors on rank 0, for a whole or sharded model.
inline TensorMap whole_tensors(dist::Group& world, const torch::nn::Module& module) {
  const auto tensors = gather_tensors(world, named_tensors(module));
  return {tensors.begin(), tensors.end()};
}

inline TensorMap copy_of_parameters(torch::nn::Module& module) {
  TensorMap result;
  for (const auto& item : module.named_parameters()) result[item.key()] = item.value().detach().clone();
  return result;
}

}  // namespace yoke::train
