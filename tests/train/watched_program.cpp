// A training in a Run, for tests of what it says about its steps and its memory.
//
//   watched_program FOLDER leak|cache|late|data|evaluation|rate|log|throw
//
// leak: rank 1 keeps 160 KiB of each step. cache: it keeps as much in the first half of the first epoch, and 64 MiB
// of the first evaluation. late: its forward takes 6 ms longer. data: the batches of
// all ranks take 10 ms. evaluation: every 20 steps they read a figure, for which rank 1 needs 100 ms. rate: its
// learning rate is another one, which is found after step 20. log: it logs a figure less often. throw: it fails in
// step 10.
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "yoke/train.h"

namespace train = yoke::train;

namespace {

struct Rows {
  at::Tensor x;
  useconds_t time_us;
  int64_t size() const { return x.size(0); }
  at::Tensor sample(int64_t i) const {
    if (time_us > 0) usleep(time_us);  // clock: the work of the loader
    return x[i];
  }
};

}  // namespace

int main(int argc, char** argv) {
  return yoke::run_program("watched_program", [&] {
    if (argc != 3) throw yoke::Error(yoke::ErrorCode::kInvalidArgument, "usage: watched_program FOLDER CASE");
    const std::string name = argv[2];
    const bool fails = name == "rate" || name == "log" || name == "throw";
    const int64_t num_steps = fails ? 20 : name == "late" || name == "data" || name == "evaluation" ? 200 : 500;
    at::set_num_threads(1);
    yoke::dist::World world;
    train::Run run(world, {.folder = argv[1],
                           .watch_every = std::chrono::milliseconds(500),
                           .check_replicas_every = name == "rate" ? 20 : 0});
    torch::nn::Linear model(8, 1);
    train::DistributedDataParallel net(model, world);
    const bool is_odd = fails && world.rank() == 1;
    train::Sgd optimizer(net, {.lr = name == "rate" && is_odd ? 0.02 : 0.01});
    const auto x = at::randn({num_steps * world.size(), 8});
    train::Loader loader(Rows{x, name == "data" ? 10'000U : 0U}, world, {.batch_size = 1});
    run.state().add("model", net).add("optimizer", optimizer);
    std::vector<at::Tensor> kept;
    for (auto& epoch : run.epochs(loader, name == "cache" ? 2 : 1)) {
      for (auto& batch : epoch) {
        usleep(name == "late" && world.rank() == 1 ? 9000 : 3000);  // clock: the work of a step
        if (is_odd && name == "throw" && run.step() == 10) throw std::runtime_error("no more rice");
        optimizer.zero_grad();
        at::mse_loss(net(batch), batch.sum(1, true)).backward();
        optimizer.step();
        if (fails && !(is_odd && name == "log" && run.step() == 10)) run.log("loss", 1.0);
        if (name == "evaluation" && (run.step() + 1) % 20 == 0) {
          train::Mean loss;
          loss.add(at::ones({}), 1);
          if (world.rank() == 1) usleep(100'000);  // clock: the work of the evaluation
          loss.read(world);
        }
        const bool keeps = name == "leak" || (name == "cache" && run.step() < num_steps / 2);
        if (keeps && world.rank() == 1) kept.push_back(at::ones({160 << 10}, at::kByte));
      }
      if (name == "cache" && run.epoch() == 1 && world.rank() == 1) kept.push_back(at::ones({64 << 20}, at::kByte));
    }
    world.shutdown();
  });
}
