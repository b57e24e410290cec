// Interrupts a training in the middle of an epoch and resumes it. The training has batch norm, dropout and a loader.
// The same calls train a replicated or a sharded model.
//
//   resume_program ddp|zero|fsdp FOLDER END   continues from FOLDER's newest checkpoint to step END, and saves
//   resume_program compare FOLDER FOLDER      prints whether the models in the newest checkpoints have equal bits
//   resume_program samples FOLDER BATCH,STEP  trains to the end with this batch size on each rank, and rank 1 kills
//                                             itself in that step; each rank adds its samples to FOLDER/rank-RANK
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <signal.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/contract/program.h"
#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/run/run.h"
#include "yoke/train/seed.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"
#include "yoke/train/shard/sharded_optimizer.h"
#include "yoke/train/shard/unit.h"

namespace {

using namespace yoke;
namespace nn = torch::nn;

struct Block : nn::Module {
  nn::Linear linear{nullptr};
  nn::BatchNorm1d norm{nullptr};
  nn::Dropout dropout{nullptr};
  Block() {
    linear = register_module("linear", nn::Linear(16, 16));
    norm = register_module("norm", nn::BatchNorm1d(16));
    dropout = register_module("dropout", nn::Dropout(0.2));
  }
  at::Tensor forward(const at::Tensor& x) { return x + dropout(norm(linear(x)).relu()); }
};

struct Network : nn::Module {
  train::Unit<Block> first{nullptr}, second{nullptr};
  nn::Linear head{nullptr};
  Network() {
    first = register_module("first", train::Unit<Block>());
    second = register_module("second", train::Unit<Block>());
    head = register_module("head", nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return head(second(first(x))); }
};

/// SGD, not Adam: the gradient of a bias before a batch norm consists of rounding errors, which Adam would scale to
/// steps of full size.
const train::SgdOptions kSgd{.momentum = 0.9};

train::Samples some_samples() {
  const auto x = at::arange(320 * 16).to(at::kFloat).view({320, 16}).sin();
  return {.data = x, .target = at::arange(320) % 4};
}

template <class Net, class Optimizer>
void train_to(int64_t end, const std::string& folder, dist::World& world, Net& net, Optimizer& optimizer) {
  train::seed({.seed = 5, .rank = world.rank()});
  train::Loader loader(some_samples(), world, {.batch_size = 32 / world.size(), .seed = 3});  // 10 steps per epoch
  int64_t step = 0;
  train::TrainState state(world);
  state.add("model", net).add("optimizer", optimizer).add("loader", loader).add("step", step).add_generators();
  train::CheckpointFolder checkpoints(folder, {.keep = 1});
  checkpoints.load_latest(state);
  while (step < end) {
    for (auto& batch : loader.epoch(loader.position().epoch)) {
      optimizer.zero_grad();
      nn::functional::cross_entropy(net(batch.data), batch.target).backward();
      optimizer.step(0.05);
      if (++step == end) {
        checkpoints.save_async(step, state);
        break;
      }
    }
  }
  checkpoints.finish();
}

void run(const std::string& way, const std::string& folder, int64_t end) {
  dist::World world;
  at::set_num_threads(1);
  train::seed({.seed = 1});
  Network network;
  if (way == "fsdp") {
    train::FullyShardedDataParallel net(network, world, {.units = {"first", "second"}});
    train::Sgd optimizer(net, kSgd);
    train_to(end, folder, world, net, optimizer);
  } else if (way == "zero") {
    train::ShardedOptimizer optimizer(
        network, world, [](train::NamedTensors parts) { return std::make_unique<train::Sgd>(std::move(parts), kSgd); });
    train::DistributedDataParallel net(network, world);
    train_to(end, folder, world, net, optimizer);
  } else {
    train::DistributedDataParallel net(network, world);
    train::Sgd optimizer(net, kSgd);
    train_to(end, folder, world, net, optimizer);
  }
  world.shutdown();
}

void compare(const std::string& a, const std::string& b) {
  const auto model_of = [](const std::string& path) {
    const train::CheckpointFolder folder(path);
    return train::read_whole(train::read_checkpoint(folder.path_of(folder.steps().back())).part("model"));
  };
  const auto ours = model_of(a), theirs = model_of(b);
  if (ours.size() != 16 || theirs.size() != 16) throw Error(ErrorCode::kInternal, "{} tensors", ours.size());
  double most = 0;
  for (const auto& [name, tensor] : ours) {
    most = std::max(most, (tensor - theirs.at(name)).abs().max().item<double>());
  }
  fmt::print("{}\n", most == 0 ? "equal" : most < 1e-4 ? "close" : fmt::format("different by {}", most));
}

/// Sample i has the number i and a number of its own for augmentation.
struct Augmented {
  int64_t size() const { return 1001; }
  std::pair<at::Tensor, at::Tensor> sample(int64_t i, train::SampleRandom& random) const {
    return {at::full({16}, 1e-3 * static_cast<double>(i)), at::tensor({i, random.below(1 << 30)})};
  }
};

void train_samples(const std::string& folder, const std::string& numbers) {
  dist::World world;
  const int64_t batch_size = std::stoll(numbers), kill_at = std::stoll(numbers.substr(numbers.find(',') + 1));
  train::Run run(world, {.folder = folder + "/run", .resume = std::filesystem::exists(folder + "/run")});
  train::seed({.seed = 1});
  Network network;
  train::DistributedDataParallel net(network, world);
  train::Sgd optimizer(net, kSgd);
  train::Loader loader(Augmented(), world, {.batch_size = batch_size, .seed = 3, .num_workers = 2});
  run.state().add("model", net).add("optimizer", optimizer).add_generators();
  std::ofstream diary(fmt::format("{}/rank-{}", folder, world.rank()), std::ios::app);
  for (auto& epoch : run.epochs(loader, 2)) {
    for (auto& [data, numbers_of_samples] : epoch) {
      optimizer.zero_grad();
      net(data).square().mean().backward();
      if (run.step() == kill_at && world.rank() == 1) raise(SIGKILL);
      optimizer.step(0.01);
      if (run.step() % 4 == 3) run.save();  // on disk before a later step is killed
      const auto rows = numbers_of_samples.accessor<int64_t, 2>();
      for (int64_t i = 0; i < rows.size(0); ++i) {
        diary << fmt::format("{} {} {} {} {}\n", run.step(), run.epoch(), world.size(), rows[i][0], rows[i][1]);
      }
      diary.flush();
    }
  }
  world.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("resume_program", [&] {
    if (argc != 4) throw Error(ErrorCode::kInvalidArgument, "see the top of the source");
    const std::string way = argv[1];
    if (way == "compare") return compare(argv[2], argv[3]);
    way == "samples" ? train_samples(argv[2], argv[3]) : run(way, argv[2], std::stoll(argv[3]));
  });
}
