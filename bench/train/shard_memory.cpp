// How much memory does a rank need if it has the whole training state (DistributedDataParallel), a share of the
// optimizer's state (ZeRO-1), or a share of everything (FSDP)? AdamW, float32. Rank 0 prints one line, with the figures
// of the rank that needs most, and those that theory predicts.
//
//   for n in 1 2 4; do
//     for way in ddp zero-1 fsdp; do yoke run --no-prefix -n $n -- bench_shard_memory $way; done
//   done
//
// held: bytes of tensors between two steps, counted in libtorch's allocator. resident: growth of RssAnon. peak: the
// most bytes of tensors at any moment of a step, including activations and messages. MB is 10^6 bytes.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include <fstream>
#include <optional>
#include <string>

#include "fakes/tensor_bytes.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"
#include "yoke/train/shard/sharded_optimizer.h"
#include "yoke/train/shard/unit.h"

namespace {

namespace nn = torch::nn;
using namespace yoke;

constexpr int64_t kBlocks = 24;
constexpr int kSteps = 3;

struct Network : nn::Module {
  std::vector<train::Unit<nn::LinearImpl>> blocks;

  explicit Network(int64_t width) {
    for (int64_t i = 0; i < kBlocks; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), train::Unit<nn::LinearImpl>(width, width)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& block : blocks) x = torch::tanh(block(x));
    return x;
  }
};

double resident_mb() {
  malloc_trim(0);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssAnon:", 0) == 0) return std::stod(line.substr(8)) * 1024 / 1e6;
  }
  return 0;
}

struct Training {
  Training(const std::string& way, int64_t width, dist::World& all_ranks) : world(all_ranks), network(width) {
    const auto make = [](train::NamedTensors slices) { return std::make_unique<train::AdamW>(std::move(slices)); };
    if (way == "fsdp") {
      train::FullyShardedOptions options;
      for (int64_t i = 0; i < kBlocks; ++i) options.units.push_back("block" + std::to_string(i));
      sharded.emplace(network, world, options);
      plain = make(sharded->parameters());
      return;
    }
    if (way == "zero-1") {
      zero.emplace(network.named_parameters().pairs(), world, make);
    } else if (way == "ddp") {
      plain = make(network.named_parameters().pairs());
    } else {
      throw Error(ErrorCode::kInvalidArgument, "unknown way '{}': choose ddp, zero-1 or fsdp", way);
    }
    train::DistributedDataParallelOptions options;
    options.gradient_as_bucket_view = true;
    parallel.emplace(network, world, options);
  }

  void step() {
    zero ? zero->zero_grad() : plain->zero_grad();
    const auto x = torch::ones({8, network.blocks[0]->options.in_features()});
    const auto output = parallel ? (*parallel)(x) : (*sharded)(x);
    output.square().mean().backward();
    zero ? zero->step() : plain->step();
  }

  dist::World& world;
  Network network;
  std::optional<train::FullyShardedDataParallel<Network>> sharded;
  std::optional<train::ShardedOptimizer> zero;
  std::optional<train::DistributedDataParallel<Network>> parallel;
  std::unique_ptr<train::Optimizer> plain;
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string way = argc > 1 ? argv[1] : "fsdp";
  const int64_t width = argc > 2 ? std::stoll(argv[2]) : 1440;
  at::set_num_threads(1);
  fakes::count_tensor_bytes();
  dist::World world;
  const double before = resident_mb();
  Training training(way, width, world);
  for (int i = 0; i < kSteps; ++i) training.step();
  fakes::reset_peak_tensor_bytes();
  training.step();
  const auto figures = torch::tensor({static_cast<double>(fakes::tensor_bytes()) / 1e6, resident_mb() - before,
                                      static_cast<double>(fakes::peak_tensor_bytes()) / 1e6},
                                     torch::kDouble);
  world.all_reduce(figures, dist::ReduceOp::kMax);
  const auto parameters = static_cast<double>(kBlocks * width * (width + 1));
  const auto share = 1.0 / static_cast<double>(world.size());
  // A parameter and its gradient have 4 bytes each. The two moments of AdamW have 8 bytes together.
  const double bytes = way == "ddp" ? 16 : way == "zero-1" ? 8 + 8 * share : 16 * share;
  if (world.rank() == 0) {
    fmt::print(
        "{:6} {} ranks, {:.1f} M parameters: held {:.0f} MB (theory {:.0f}), resident {:.0f} MB, peak {:.0f} MB\n", way,
        world.size(), parameters / 1e6, figures[0].item<double>(), parameters * bytes / 1e6, figures[1].item<double>(),
        figures[2].item<double>());
  }
  world.shutdown();
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_shard_memory: {}\n", error.what());
  return 1;
}
