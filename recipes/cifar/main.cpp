// recipes/cifar/main.cpp -- trains a ResNet on every rank; the whole loop is in this file.
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "recipes/cifar/data.h"
#include "recipes/cifar/options.h"
#include "recipes/cifar/presets.h"
#include "recipes/common/options.h"
#include "recipes/common/parallel.h"
#include "recipes/common/training.h"
#include "yoke/contract/program.h"
#include "yoke/dist/world.h"
#include "yoke/infer/run.h"
#include "yoke/models/resnet.h"
#include "yoke/models/weights.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/meter.h"
#include "yoke/train/optim/one_cycle.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/run/run.h"
#include "yoke/train/seed.h"

namespace cifar {
namespace {

using namespace yoke;
using Net = recipes::Parallel<models::ResNet>;

/// Collective: each rank tests its share of the samples. Returns the loss and the accuracy over all ranks.
std::pair<double, double> evaluate(Net& net, models::ResNet& model, const train::Samples& samples, dist::World& world,
                                   const train::AutocastOptions& precision) {
  const c10::NoGradGuard no_grad;
  model->eval();
  train::Mean loss;
  train::Accuracy accuracy;
  train::Loader loader(samples, world,
                       {.batch_size = 250,
                        .shuffle = false,
                        .exact = true,
                        .num_workers = recipes::num_workers(world),
                        .normalization = normalization(),
                        .memory_format = at::MemoryFormat::ChannelsLast});
  for (const auto& batch : loader.epoch(0)) {
    const train::Autocast autocast(precision);
    const auto logits = net(batch.data);
    loss.add(at::cross_entropy_loss(logits, batch.target), batch.target.size(0));
    accuracy.add(logits, batch.target);
  }
  model->train();
  const auto means = train::read_all(world, {&loss, &accuracy});
  return {means[0], means[1]};
}

void train_network(Options options) {
  train::flush_denormals();
  dist::World world;
  train::Run run(world, recipes::run_options(options, "cifar"));
  recipes::fix(run, world, options);
  run.fix("data", options.data, options.given.contains("--data"));
  const auto preset = preset_of(options.preset);
  const auto batch_size = recipes::fix_steps(run, world, options, preset.num_epochs, preset.batch_size);
  const auto precision = recipes::autocast(options, world);

  const auto data = read_or_draw(options.data, run.folder() / "shapes", preset.num_train, preset.num_test, world);
  train::Loader loader(
      Augmented(data.train), world,
      {.batch_size = batch_size, .seed = options.seed, .drop_last = true, .num_workers = recipes::num_workers(world)});

  train::seed({.seed = options.seed, .deterministic = options.deterministic});  // all ranks get the same weights
  models::ResNet model(preset.network);
  model->to(world.device());
  recipes::to_channels_last(*model);
  Net net(model, world, {.how = options.parallel, .units = model->fsdp_units()}, [&](train::NamedTensors parameters) {
    const train::SgdOptions decayed{.momentum = preset.momentum, .weight_decay = preset.weight_decay, .nesterov = true};
    auto rest = decayed;
    rest.weight_decay = 0;  // biases and batch norm
    auto [weights, others] = train::split(parameters, [](auto&, at::IntArrayRef shape) { return shape.size() > 1; });
    using Group = train::ParameterGroup<train::SgdOptions>;
    return std::make_unique<train::Sgd>(
        std::vector{Group{std::move(weights), decayed}, Group{std::move(others), rest}});
  });
  train::seed({.seed = options.seed, .rank = world.rank(), .deterministic = options.deterministic});
  const train::OneCycleOptions schedule{.total_steps = recipes::num_steps(options, loader.num_batches(), batch_size),
                                        .max_lr = preset.max_lr,
                                        .pct_start = preset.warm_up,
                                        .anneal = train::Anneal::kLinear};

  net.add_to(run.state());
  recipes::add_rest(run, options);
  run.say(fmt::format("cifar: {}, {}, into {}", options.preset, recipes::describe(options, world, batch_size),
                      run.folder().string()));
  double test_loss = 0, accuracy = 0;
  const auto test = [&] { std::tie(test_loss, accuracy) = evaluate(net, model, data.test, world, precision); };
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

  if (!run.stopped()) {
    run.say(fmt::format("test accuracy {:.4f}", accuracy));
    const auto weights = run.folder() / "model.safetensors";
    models::save_weights(world, *model, weights);
    run.say(fmt::format("weights       {}, with torchvision's names", weights.string()));
  }
  recipes::say_how_to_resume(run, world, options, "cifar");
  world.shutdown();
}

/// The network of a checkpoint, for `yoke infer`.
infer::Model network_of(const train::StoredCheckpoint& checkpoint, c10::Device device) {
  models::ResNet model(preset_of(infer::fixed_value(checkpoint, "preset")).network);
  infer::load_network(checkpoint, *model, device);
  recipes::to_channels_last(*model);
  return infer::model_of_images([model](const at::Tensor& x) mutable { return model(x); },
                                {.height = 32,
                                 .width = 32,
                                 .shorter_side = 32,
                                 .normalization = normalization(),
                                 .memory_format = at::MemoryFormat::ChannelsLast});
}

}  // namespace
}  // namespace cifar

int main(int argc, char** argv) {
  if (const auto status = yoke::infer::main_of_recipe(argc, argv, cifar::network_of)) return *status;
  const auto options = cifar::parse(argc, argv);
  return yoke::run_program("cifar", [&] { cifar::train_network(options); });
}
