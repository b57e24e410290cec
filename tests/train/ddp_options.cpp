// Trains like tests/reference/record_ddp_options.py, but with yoke: the same networks, batches and options. Writes JSON
// in the same format.
//
//   yoke run -n 2 -- ddp_options [--case NAME] [--out FILE]
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <zlib.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/dist/world.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/parallel/power_sgd.h"
#include "yoke/train/parallel/sync_batch_norm.h"

namespace {

namespace nn = torch::nn;
using namespace yoke::train;
using yoke::dist::World;

constexpr int64_t kSteps = 20;

at::Generator generator(int64_t rank, int64_t step, int64_t micro = 0) {
  return at::detail::createCPUGenerator(static_cast<uint64_t>(100000 * rank + 10 * step + micro));
}

struct Batch {
  at::Tensor x, y;
};

Batch batch(int64_t rank, int64_t step, int64_t micro = 0) {
  auto source = generator(rank, step, micro);
  const auto x = torch::randn({16, 12}, source);
  return {x, torch::randint(4, {16}, source, torch::kLong)};
}

Batch index_batch(int64_t rank, int64_t step) {
  auto source = generator(rank, step);
  const auto x = torch::randint(40, {16, 3}, source, torch::kLong);
  return {x, torch::randint(4, {16}, source, torch::kLong)};
}

struct Mlp : nn::Module {
  nn::Linear a{nullptr}, b{nullptr}, c{nullptr};
  SyncBatchNorm norm{nullptr};

  // Each statement constructs one layer, so that the order of random numbers, and so the weights, are those of Python.
  explicit Mlp(bool with_norm = false) {
    a = register_module("a", nn::Linear(12, 32));
    if (with_norm) norm = register_module("norm", SyncBatchNorm(32));  // acts as a BatchNorm until it is synchronized
    b = register_module("b", nn::Linear(32, 24));
    c = register_module("c", nn::Linear(24, 4));
  }

  at::Tensor forward(at::Tensor x) {
    x = a(x);
    if (norm) x = norm(x);
    return c(torch::relu(b(torch::relu(x))));
  }
};

struct Branches : nn::Module {
  nn::Linear a{nullptr}, left{nullptr}, right{nullptr}, never{nullptr}, c{nullptr};

  Branches() {
    a = register_module("a", nn::Linear(12, 16));
    left = register_module("left", nn::Linear(16, 16));
    right = register_module("right", nn::Linear(16, 16));
    never = register_module("never", nn::Linear(2, 2));
    c = register_module("c", nn::Linear(16, 4));
  }

  at::Tensor forward(at::Tensor x, bool goes_left) {
    x = torch::relu(a(x));
    return c(torch::relu(goes_left ? left(x) : right(x)));
  }
};

struct Words : nn::Module {
  nn::Embedding embedding{nullptr};
  nn::Linear c{nullptr};

  Words() {
    embedding = register_module("embedding", nn::Embedding(nn::EmbeddingOptions(40, 8).sparse(true)));
    c = register_module("c", nn::Linear(8, 4));
  }

  at::Tensor forward(const at::Tensor& indices) { return c(embedding(indices).mean(1)); }
};

bool goes_left(int64_t rank, int64_t step) {
  const bool table[] = {true, false, rank == 0, rank == 1};
  return table[step % 4];
}

/// A trained model and its losses.
struct Result {
  std::shared_ptr<nn::Module> model;
  std::vector<double> losses;
};

/// Returns the loss of a step, which depends on the case. `micro` is the number of the micro-batch.
using LossOf = std::function<at::Tensor(int64_t step, int64_t micro)>;

struct Training {
  int64_t num_steps = kSteps;
  int64_t num_micro = 1;
  double momentum = 0.9;
  std::optional<JoinOptions> join;
};

template <class M>
Result train(World& world, const std::shared_ptr<M>& model, const LossOf& loss_of,
             const DistributedDataParallelOptions& options, const Training& training = {}) {
  DistributedDataParallel net(*model, world, options);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(training.momentum));
  Result result{model, {}};
  std::optional<DistributedDataParallelBase::Join> join;
  if (training.join) join.emplace(net.join(*training.join));
  for (int64_t step_number = 0; step_number < training.num_steps; ++step_number) {
    model->zero_grad();
    for (int64_t micro = 0; micro + 1 < training.num_micro; ++micro) {
      const auto no_sync = net.no_sync();
      loss_of(step_number, micro).backward();
    }
    const auto loss = net.run([&] { return loss_of(step_number, training.num_micro - 1); });
    loss.backward();
    optimizer.step();
    result.losses.push_back(loss.template item<double>());
  }
  if (join) join->finish();
  return result;
}

Result plain(World& world, const DistributedDataParallelOptions& options = {}, const Training& training = {},
             bool with_norm = false) {
  const auto model = std::make_shared<Mlp>(with_norm);
  const auto loss_of = [&](int64_t step, int64_t micro) {
    const auto [x, y] = batch(world.rank(), step, micro);
    return torch::cross_entropy_loss(model->forward(x), y);
  };
  return train(world, model, loss_of, options, training);
}

Result branches(World& world, const DistributedDataParallelOptions& options, std::optional<bool> fixed = {}) {
  const auto model = std::make_shared<Branches>();
  const auto loss_of = [&](int64_t step, int64_t) {
    const auto [x, y] = batch(world.rank(), step);
    return torch::cross_entropy_loss(model->forward(x, fixed.value_or(goes_left(world.rank(), step))), y);
  };
  return train(world, model, loss_of, options);
}

Result sparse_embedding(World& world) {
  const auto model = std::make_shared<Words>();
  const auto loss_of = [&](int64_t step, int64_t) {
    const auto [x, y] = index_batch(world.rank(), step);
    return torch::cross_entropy_loss(model->forward(x), y);
  };
  return train(world, model, loss_of, {}, {.momentum = 0});
}

Result sync_batch_norm(World& world) {
  const auto model = std::make_shared<Mlp>(true);
  convert_sync_batch_norm(*model, world);
  const auto loss_of = [&](int64_t step, int64_t) {
    const auto [x, y] = batch(world.rank(), step);
    return torch::cross_entropy_loss(model->forward(x), y);
  };
  return train(world, model, loss_of, {});
}

Result power_sgd(World& world, const PowerSgdOptions& options) {
  return plain(world, {.communication_hook = power_sgd_hook(world, options)});
}

using Case = std::function<Result(World&)>;

const std::vector<std::pair<std::string, Case>>& cases() {
  static const std::vector<std::pair<std::string, Case>> all = {
      {"plain", [](World& world) { return plain(world); }},
      {"views", [](World& world) { return plain(world, {.gradient_as_bucket_view = true}); }},
      {"static_graph", [](World& world) { return plain(world, {.static_graph = true}); }},
      {"static_graph_unused", [](World& world) { return branches(world, {.static_graph = true}, true); }},
      {"find_unused", [](World& world) { return branches(world, {.find_unused_parameters = true}); }},
      {"no_sync", [](World& world) { return plain(world, {}, {.num_micro = 2}); }},
      {"no_sync_views", [](World& world) { return plain(world, {.gradient_as_bucket_view = true}, {.num_micro = 2}); }},
      {"buffers", [](World& world) { return plain(world, {}, {}, true); }},
      {"join",
       [](World& world) {
         return plain(world, {}, {.num_steps = kSteps - 8 * (1 - world.rank()), .join = JoinOptions()}, true);
       }},
      {"join_active",
       [](World& world) {
         return plain(world, {},
                      {.num_steps = kSteps - 8 * world.rank(), .join = JoinOptions{.divide_by_all_ranks = false}});
       }},
      {"join_find_unused",
       [](World& world) {
         return plain(world, {.find_unused_parameters = true},
                      {.num_steps = kSteps - 8 * world.rank(), .join = JoinOptions()});
       }},
      {"sparse_embedding", sparse_embedding},
      {"ignored",
       [](World& world) {
         return plain(world, {.ignored = {"b.weight", "b.bias"}});
       }},
      {"fp16", [](World& world) { return plain(world, {.communication_hook = fp16_hook(world)}); }},
      {"bf16", [](World& world) { return plain(world, {.communication_hook = bf16_hook(world)}); }},
      {"power_sgd", [](World& world) { return power_sgd(world, {.matrix_rank = 1, .start_step = 3}); }},
      {"power_sgd_rank_4",
       [](World& world) { return power_sgd(world, {.matrix_rank = 4, .start_step = 2, .min_compression_rate = 0.5}); }},
      {"power_sgd_plain",
       [](World& world) {
         return power_sgd(world, {.matrix_rank = 2,
                                  .start_step = 2,
                                  .min_compression_rate = 1,
                                  .error_feedback = false,
                                  .warm_start = false});
       }},
      {"sync_batch_norm", sync_batch_norm},
  };
  return all;
}

std::string hex(double value) {  // formats like Python's float.hex()
  return value == 0 ? "0x0.0p+0" : fmt::format("{:.13a}", value);
}

nlohmann::ordered_json to_json(const Result& result) {
  nlohmann::ordered_json record;
  for (const double loss : result.losses) record["losses_hex"].push_back(hex(loss));
  auto tensors = result.model->named_parameters().pairs();
  for (const auto& item : result.model->named_buffers()) tensors.emplace_back(item.key(), item.value());
  for (const auto& [name, tensor] : tensors) {
    const auto values = tensor.detach().to(torch::kFloat).contiguous();
    record["crc32"][name] = crc32(0, static_cast<const Bytef*>(values.data_ptr()), static_cast<uInt>(values.nbytes()));
    record["sums_hex"][name] = hex(values.sum(torch::kDouble).item<double>());
  }
  return record;
}

}  // namespace

int main(int argc, char** argv) {
  std::string only, out;
  CLI::App app("Short trainings with each option of DistributedDataParallel, for comparison with PyTorch's");
  app.add_option("--case", only);
  app.add_option("--out", out);
  CLI11_PARSE(app, argc, argv);

  at::set_num_threads(1);
  World world;
  nlohmann::ordered_json record;
  for (const auto& [name, run] : cases()) {
    if (!only.empty() && name != only) continue;
    torch::manual_seed(0);
    for (const auto& text : world.all_gather_text(to_json(run(world)).dump())) {
      record["cases"][name].push_back(nlohmann::ordered_json::parse(text));
    }
  }
  if (world.rank() == 0) {
    if (out.empty()) {
      std::cout << record.dump(1) << '\n';
    } else {
      std::ofstream(out) << record.dump(1) << '\n';
    }
  }
  world.shutdown();
  return 0;
}
