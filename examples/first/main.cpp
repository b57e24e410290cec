// A first training program on yoke: it learns to tell two spirals apart, on one rank or on many. It can be stopped and
// resumed.
//
//   yoke run -n 2 -- build/first --epochs 10
//   yoke run -n 2 -- build/first --resume
#include <cmath>
#include <set>

#include "yoke/train.h"

namespace train = yoke::train;

// Makes points of two spirals: data float [num_points, 2], target int64 [num_points], 0 or 1.
train::Samples make_spirals(int64_t num_points) {
  const auto target = torch::arange(num_points) % 2;
  const auto radius = torch::rand({num_points}).sqrt();
  const auto angle = radius * 10 + target * M_PI;
  const auto points = torch::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  return {.data = (points + torch::randn_like(points) * 0.01).contiguous(), .target = target};
}

torch::nn::Sequential make_model() {
  torch::nn::Sequential model;
  model->push_back(torch::nn::Linear(2, 64));
  model->push_back(torch::nn::ReLU());
  model->push_back(torch::nn::Linear(64, 64));
  model->push_back(torch::nn::ReLU());
  model->push_back(torch::nn::Linear(64, 2));
  return model;
}

void run_training(int64_t epochs, const std::set<std::string>& words) {
  constexpr int64_t kGlobalBatch = 256;  // of all ranks together, so that results hardly depend on their number
  yoke::dist::World world;               // joins the other ranks, or runs alone without a launcher
  train::Run run(world, {.name = "first", .resume = words.contains("--resume")});  // the run's folder is runs/first
  run.fix("epochs", epochs, words.contains("--epochs"));                           // a resumed run keeps its epochs

  train::seed({.seed = 1});  // all ranks get the same data and the same initial weights
  const auto samples = make_spirals(8192);
  auto model = make_model();
  model->to(world.device());
  train::DistributedDataParallel net(model, world);
  train::Sgd optimizer(net, {.momentum = 0.9, .nesterov = true});
  train::Loader loader(samples, world, {.batch_size = kGlobalBatch / world.size(), .seed = 1, .drop_last = true});
  const train::OneCycleOptions schedule{.total_steps = epochs * loader.num_batches(), .max_lr = 0.3};

  run.state().add("model", net).add("optimizer", optimizer).add_generators();
  for (auto& epoch : run.epochs(loader, epochs)) {
    for (auto& [points, target] : epoch) {  // the samples of this rank, on its device
      optimizer.zero_grad();
      const auto logits = net(points);
      const auto loss = torch::nn::functional::cross_entropy(logits, target);
      loss.backward();  // then every rank has the mean gradient
      optimizer.step(train::one_cycle_lr(run.schedule_step(), schedule));
      run.log("loss", loss, target.size(0));  // means over the epoch and all ranks
      run.log("accuracy", logits.argmax(1).eq(target).to(torch::kFloat).mean(), target.size(0));
    }
  }
  world.shutdown();
}

int main(int argc, char** argv) {
  return yoke::run_program("first", [&] {
    const std::set<std::string> words(argv + 1, argv + argc);
    int64_t epochs = 10;
    for (int i = 1; i + 1 < argc; ++i) epochs = std::string(argv[i]) == "--epochs" ? std::stoll(argv[i + 1]) : epochs;
    run_training(epochs, words);
  });
}
