// recipes/images/main.cpp -- trains a network on pictures on every rank; the whole loop is in this file.
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "recipes/common/options.h"
#include "recipes/common/parallel.h"
#include "recipes/common/training.h"
#include "recipes/images/data.h"
#include "recipes/images/network.h"
#include "recipes/images/options.h"
#include "recipes/images/presets.h"
#include "yoke/contract/program.h"
#include "yoke/dist/world.h"
#include "yoke/infer/run.h"
#include "yoke/models/image_model.h"
#include "yoke/models/weights.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/image/mix.h"
#include "yoke/train/meter.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/run/run.h"
#include "yoke/train/seed.h"

namespace images {
namespace {

using namespace yoke;
using Net = recipes::Parallel<models::ImageModel>;

/// Collective: each rank tests its share of the pictures. Returns the loss and the accuracy over all ranks.
std::pair<double, double> evaluate(Net& net, models::ImageModel& model, const Pictures& pictures, dist::World& world,
                                   const train::AutocastOptions& precision) {
  const c10::NoGradGuard no_grad;
  model.eval();
  train::Mean loss;
  train::Accuracy accuracy;
  train::Loader loader(
      pictures, world,
      {.batch_size = 64, .shuffle = false, .exact = true, .num_workers = 1 + recipes::num_workers(world)});
  for (const auto& batch : loader.epoch(0)) {
    const train::Autocast autocast(precision);
    const auto logits = net(batch.data);
    loss.add(at::cross_entropy_loss(logits, batch.target), batch.target.size(0));
    accuracy.add(logits, batch.target);
  }
  model.train();
  const auto means = train::read_all(world, {&loss, &accuracy});
  return {means[0], means[1]};
}

void train_network(Options options) {
  train::flush_denormals();
  dist::World world;
  train::Run run(world, recipes::run_options(options, "images"));
  recipes::fix(run, world, options);
  run.fix("data", options.data, options.given.contains("--data"));
  run.fix("head", options.num_classes, options.given.contains("--head"));
  const auto preset = preset_of(options.preset);
  const auto batch_size = recipes::fix_steps(run, world, options, preset.num_epochs, preset.batch_size);
  const auto precision = recipes::autocast(options, world);

  if (options.data.empty()) draw_shapes(run.folder() / "shapes", preset, world);
  const auto sets = find_sets(options.data.empty() ? run.folder() / "shapes" : std::filesystem::path(options.data),
                              options.num_classes, options.seed);
  const Pictures test_pictures(sets.test, sets.test_samples, testing_transform(preset), sets.num_classes);
  train::Loader loader(Pictures(sets.train, sets.train_samples, training_transform(preset), sets.num_classes), world,
                       {.batch_size = batch_size,
                        .seed = options.seed,
                        .drop_last = true,
                        .num_workers = 1 + recipes::num_workers(world)});

  train::seed({.seed = options.seed, .deterministic = options.deterministic});  // all ranks get the same weights
  const auto model = make_network(preset, sets.num_classes, run.resumed() ? "" : options.init,
                                  [&](const std::string& text) { run.say(text); });
  model->to(world.device());
  recipes::to_channels_last(*model);
  Net net(*model, world, {.how = options.parallel, .units = model->fsdp_units()},
          [&](const train::NamedTensors& parameters) { return make_optimizer(preset, parameters); });
  train::seed({.seed = options.seed, .rank = world.rank(), .deterministic = options.deterministic});
  const auto schedule = schedule_of(preset, recipes::num_steps(options, loader.num_batches(), batch_size));

  net.add_to(run.state());
  recipes::add_rest(run, options);
  run.say(fmt::format("images: {}, {} pictures of {} classes, {}, into {}", options.preset, sets.train_samples.size(),
                      sets.num_classes, recipes::describe(options, world, batch_size), run.folder().string()));
  double test_loss = 0, accuracy = 0;
  const auto test = [&] { std::tie(test_loss, accuracy) = evaluate(net, *model, test_pictures, world, precision); };
  auto epochs = run.epochs(loader, options.num_epochs);
  if (run.epoch() == options.num_epochs) test();  // the resumed run was already complete
  for (auto& epoch : epochs) {
    for (const auto& pictures : epoch) {
      train::SampleRandom random(options.seed, run.step(), world.rank());
      const auto batch = preset.mixup > 0 ? train::mixup(pictures, sets.num_classes, preset.mixup, random) : pictures;
      const auto loss = [&] {
        const train::Autocast autocast(precision);
        return at::cross_entropy_loss(net(batch.data), batch.target, {}, at::Reduction::Mean, -100,
                                      preset.label_smoothing);
      }();
      loss.backward();
      if (preset.max_norm > 0) net.clip_grad_norm(preset.max_norm);
      net.step(schedule(run.schedule_step()));
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
    run.say(fmt::format("weights       {}, with the names of torchvision (ResNet) or timm (ViT)", weights.string()));
  }
  recipes::say_how_to_resume(run, world, options, "images");
  world.shutdown();
}

/// The network of a checkpoint, for `yoke infer`.
infer::Model network_of(const train::StoredCheckpoint& checkpoint, c10::Device device) {
  const auto preset = preset_of(infer::fixed_value(checkpoint, "preset"));
  const auto part = checkpoint.part("model");
  const auto model = make_network(preset, /*num_classes=*/1, "", nullptr);
  const auto head = part.tensors.find(model->head() + ".weight");
  const auto num_classes = head == part.tensors.end() ? 1 : head->second.shape.front();
  const auto whole = make_network(preset, num_classes, "", nullptr);
  infer::load_network(checkpoint, *whole, device);
  recipes::to_channels_last(*whole);
  return infer::model_of_images([whole](const at::Tensor& x) { return whole->forward(x); }, testing_transform(preset));
}

}  // namespace
}  // namespace images

int main(int argc, char** argv) {
  if (const auto status = yoke::infer::main_of_recipe(argc, argv, images::network_of)) return *status;
  const auto options = images::parse(argc, argv);
  return yoke::run_program("images", [&] { images::train_network(options); });
}
