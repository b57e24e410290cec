// A first training program on yoke: tells two spirals apart, on one worker or on many.
//
//   yoke run -n 2 -- build/first --epochs 10
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "yoke/train.h"

namespace {

// Points of two spirals: data float [num_points, 2], target int64 [num_points], 0 or 1.
yoke::train::Samples make_spirals(int64_t num_points) {
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

void train(int64_t epochs) {
  constexpr int64_t kGlobalBatch = 256;  // over all ranks, so that the result hardly depends on their number

  yoke::dist::World world;  // joins the other ranks, or is alone when nobody launched it
  const auto device = world.device();
  yoke::train::seed({.seed = 1});  // the same on all ranks: they make the same data and the same first weights

  const auto samples = make_spirals(8192);
  auto model = make_model();
  model->to(device);
  yoke::train::DistributedDataParallel net(model, world);
  yoke::train::Sgd optimizer(model, {.momentum = 0.9, .nesterov = true});

  const yoke::train::DistributedSampler sampler(world,
                                                {.num_samples = samples.data.size(0), .seed = 1, .drop_last = true});
  yoke::train::Loader loader(samples, {.batch_size = kGlobalBatch / world.size(), .drop_last = true, .device = device});
  const int64_t steps_per_epoch = loader.num_batches(sampler.size());
  const yoke::train::OneCycleOptions schedule{.total_steps = epochs * steps_per_epoch, .max_lr = 0.3};

  int64_t step_number = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    yoke::train::Mean loss_mean;
    yoke::train::Accuracy accuracy;
    loader.start(sampler.indices(epoch));
    while (auto batch = loader.next()) {
      const auto &points = batch->data, &target = batch->target;

      optimizer.zero_grad();
      const auto logits = net(points);
      const auto loss = torch::nn::functional::cross_entropy(logits, target);
      loss.backward();  // afterwards every rank has the mean gradient
      optimizer.step(yoke::train::one_cycle_lr(step_number++, schedule));

      loss_mean.add(loss.detach(), points.size(0));
      accuracy.add(logits.detach(), target);
    }
    const auto figures = yoke::train::read_all(world, {&loss_mean, &accuracy});  // over all ranks
    if (world.rank() == 0) {
      std::printf("epoch %2lld  loss %.4f  accuracy %.4f\n", static_cast<long long>(epoch + 1), figures[0], figures[1]);
      std::fflush(stdout);
    }
  }
  world.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t epochs = argc == 3 && std::string_view(argv[1]) == "--epochs" ? std::atoll(argv[2]) : 10;
  try {
    train(epochs);
  } catch (const std::exception& error) {  // yoke::Error and libtorch's own
    std::fprintf(stderr, "first: %s\n", error.what());
    yoke::record_failure(error);  // the launcher shows the cause first
    return 1;
  }
}
