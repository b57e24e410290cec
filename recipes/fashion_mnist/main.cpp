// recipes/fashion_mnist/main.cpp -- trains the network on every rank; the whole loop is in this file.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/format.h>

#include <memory>
#include <tuple>
#include <utility>

#include "recipes/common/parallel.h"
#include "recipes/common/training.h"
#include "recipes/fashion_mnist/model.h"
#include "recipes/fashion_mnist/options.h"
#include "yoke/contract/program.h"
#include "yoke/dist/world.h"
#include "yoke/infer/run.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/data/idx.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/evaluate.h"
#include "yoke/train/meter.h"
#include "yoke/train/optim/one_cycle.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/run/run.h"
#include "yoke/train/seed.h"

namespace fashion_mnist {
namespace {

using namespace yoke;

using Net = recipes::Parallel<Network>;

train::Normalization normalization() { return {{0.2860}, {0.3530}}; }

train::LoaderOptions loader_options(int64_t batch_size, const dist::World& world) {
  return {.batch_size = batch_size,
          .num_workers = recipes::num_workers(world),
          .normalization = normalization(),
          .memory_format = at::MemoryFormat::ChannelsLast};
}

/// Collective: each rank tests its share of the samples. Returns the loss and the accuracy over all ranks.
std::pair<double, double> evaluate(Network& network, Net& net, const train::Samples& samples, dist::World& world,
                                   const train::AutocastOptions& precision) {
  const at::NoGradGuard no_grad;
  const auto evaluating = train::evaluate(network);
  train::Mean loss;
  train::Accuracy accuracy;
  auto options = loader_options(500, world);
  options.shuffle = false;
  options.exact = true;
  train::Loader loader(samples, world, options);
  for (const auto& batch : loader.epoch(0)) {
    const train::Autocast autocast(precision);
    const auto logits = net(batch.data);
    loss.add(at::cross_entropy_loss(logits, batch.target), batch.target.size(0));
    accuracy.add(logits, batch.target);
  }
  const auto means = train::read_all(world, {&loss, &accuracy});
  return {means[0], means[1]};
}

void train_network(Options options) {
  train::flush_denormals();
  dist::World world;
  train::Run run(world, recipes::run_options(options, "fashion-mnist"));
  recipes::fix(run, world, options);
  const auto preset = smallest();
  const auto batch_size = recipes::fix_steps(run, world, options, preset.num_epochs, preset.batch_size);
  const auto precision = recipes::autocast(options, world);

  const auto data = train::read_fashion_mnist(options.data);
  auto loading = loader_options(batch_size, world);
  loading.seed = options.seed;
  loading.drop_last = true;
  train::Loader loader(data.train, world, loading);

  train::seed({.seed = options.seed, .deterministic = options.deterministic});  // all ranks get the same weights
  Network network;
  network.to(world.device());
  recipes::to_channels_last(network);
  Net net(network, world, {.how = options.parallel}, [&](train::NamedTensors parameters) {
    const train::SgdOptions sgd{.momentum = preset.momentum, .weight_decay = preset.weight_decay, .nesterov = true};
    return std::make_unique<train::Sgd>(std::move(parameters), sgd);
  });
  const train::OneCycleOptions schedule{.total_steps = recipes::num_steps(options, loader.num_batches(), batch_size),
                                        .max_lr = preset.max_lr,
                                        .pct_start = preset.warm_up,
                                        .anneal = train::Anneal::kLinear};
  train::seed({.seed = options.seed, .rank = world.rank(), .deterministic = options.deterministic});

  net.add_to(run.state());
  recipes::add_rest(run, options);
  run.say(
      fmt::format("fashion-mnist: {}, into {}", recipes::describe(options, world, batch_size), run.folder().string()));
  double test_loss = 0, accuracy = 0;
  const auto test = [&] { std::tie(test_loss, accuracy) = evaluate(network, net, data.test, world, precision); };
  auto epochs = run.epochs(loader, options.num_epochs);
  if (run.epoch() == options.num_epochs) test();  // the resumed run was already complete
  for (auto& epoch : epochs) {
    for (const auto& batch : epoch) {
      const auto loss = [&] {
        const train::Autocast autocast(precision);
        return at::cross_entropy_loss(net(batch.data), batch.target, {}, at::Reduction::Mean, -100,
                                      preset.label_smoothing);
      }();
      loss.backward();
      net.step(train::one_cycle_lr(run.schedule_step(), schedule));
      net.zero_grad();
      run.log("train_loss", loss, batch.target.size(0));
    }
    if (run.stopped()) break;
    net.sync_buffers();
    test();
    run.log("test_loss", test_loss);
    run.log("test_accuracy", accuracy);
  }

  if (!run.stopped()) run.say(fmt::format("test accuracy {:.4f}", accuracy));
  recipes::say_how_to_resume(run, world, options, "fashion-mnist");
  world.shutdown();
}

/// The network of a checkpoint, for `yoke infer`. Images are made grey.
infer::Model network_of(const train::StoredCheckpoint& checkpoint, c10::Device device) {
  const auto network = std::make_shared<Network>();
  infer::load_network(checkpoint, *network, device);
  recipes::to_channels_last(*network);
  return infer::model_of_images(
      [network](const at::Tensor& x) { return network->forward(x.mean(1, /*keepdim=*/true)); },
      {.height = 28,
       .width = 28,
       .shorter_side = 28,
       .normalization = normalization(),
       .memory_format = at::MemoryFormat::ChannelsLast});
}

}  // namespace
}  // namespace fashion_mnist

int main(int argc, char** argv) {
  if (const auto status = yoke::infer::main_of_recipe(argc, argv, fashion_mnist::network_of)) return *status;
  const auto options = fashion_mnist::parse(argc, argv);
  return yoke::run_program("fashion-mnist", [&] { fashion_mnist::train_network(options); });
}
